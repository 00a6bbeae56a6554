"""Jobs that pause and resume a connector, as in Kafka Connect. They take a second, without the slot and Spark."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

import dagster as dg
from pydantic import Field

from wal2lake.pipelines.connector import pause
from wal2lake.pipelines.connector.site import Site


class PauseConfig(dg.Config):
    """Why the stream is paused."""

    reason: str = Field(default="", description="Shown by the sensor while the stream is paused.")


def pause_job_name(site: Site) -> str:
    """The name of the job that pauses the stream."""
    return f"{site.safe_name}_pause_job"


def resume_job_name(site: Site) -> str:
    """The name of the job that ends the pause."""
    return f"{site.safe_name}_resume_job"


def pause_jobs(site: Site) -> list[dg.JobDefinition]:
    """Both jobs of a connector."""
    return [_pause_job(site), _resume_job(site)]


def _pause_job(site: Site) -> dg.JobDefinition:
    @dg.op(name=f"{site.safe_name}_pause", description="Ends the running stream after its round, and starts no other.")
    def pause_stream(context: dg.OpExecutionContext, config: PauseConfig) -> None:
        made = pause.write(site.state_path, config.reason, context.run_id)
        context.log.info(
            f"The stream of {site.name} is {made}. A running stream ends after its current round; the server retains "
            f"WAL for the slot {site.slot} until {resume_job_name(site)} resumes the stream."
        )

    @dg.job(
        name=pause_job_name(site),
        description=f"Pauses {site.name}: a running stream ends after its current round, and the sensor "
        f"{site.safe_name}_slot starts no other one until {resume_job_name(site)} is run. Snapshots, replays and "
        "runs launched by hand are not prevented.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        pause_stream()

    return job


def _resume_job(site: Site) -> dg.JobDefinition:
    @dg.op(name=f"{site.safe_name}_resume", description="Ends the pause of the stream.")
    def resume_stream(context: dg.OpExecutionContext) -> None:
        if pause.end(site.state_path):
            context.log.info(f"The pause has ended: {site.safe_name}_slot starts the stream when there are changes.")
        else:
            context.log.info(f"The stream of {site.name} was not paused.")

    @dg.job(
        name=resume_job_name(site),
        description=f"Ends the pause that {pause_job_name(site)} began: the sensor {site.safe_name}_slot starts the "
        "stream when the slot has changes.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        resume_stream()

    return job
