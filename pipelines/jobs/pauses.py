"""Jobs that pause a connector's stream and let it go on. They take a second and need neither the slot nor Spark."""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

import dagster as dg
from pydantic import Field

from pipelines.connector import pause
from pipelines.connector.site import Site


class PauseConfig(dg.Config):
    """Why the stream is paused."""

    reason: str = Field(default="", description="Shown by the sensor while the stream is paused.")


def pause_job_name(site: Site) -> str:
    """The name of the job that pauses the stream."""
    return f"{site.safe_name}_pause_job"


def continue_job_name(site: Site) -> str:
    """The name of the job that ends the pause."""
    return f"{site.safe_name}_continue_job"


def pause_jobs(site: Site) -> list[dg.JobDefinition]:
    """Both jobs of a connector."""
    return [_pause_job(site), _continue_job(site)]


def _pause_job(site: Site) -> dg.JobDefinition:
    @dg.op(name=f"{site.safe_name}_pause", description="Ends the running stream after its round, and starts no other.")
    def pause_stream(context: dg.OpExecutionContext, config: PauseConfig) -> None:
        made = pause.write(site.state_path, config.reason, context.run_id)
        context.log.info(
            f"The stream of {site.name} is {made}. A running stream ends after its current round; the server retains "
            f"WAL for the slot {site.slot} until {continue_job_name(site)} lets the stream go on."
        )

    @dg.job(
        name=pause_job_name(site),
        description=f"Pauses {site.name}: a running stream ends after its current round, and the sensor "
        f"{site.safe_name}_slot starts no other one until {continue_job_name(site)} is run. Snapshots, replays and "
        "runs launched by hand are not prevented.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        pause_stream()

    return job


def _continue_job(site: Site) -> dg.JobDefinition:
    @dg.op(name=f"{site.safe_name}_continue", description="Ends the pause of the stream.")
    def continue_stream(context: dg.OpExecutionContext) -> None:
        if pause.end(site.state_path):
            context.log.info(f"The pause has ended: {site.safe_name}_slot starts the stream when there are changes.")
        else:
            context.log.info(f"The stream of {site.name} was not paused.")

    @dg.job(
        name=continue_job_name(site),
        description=f"Ends the pause that {pause_job_name(site)} began: the sensor {site.safe_name}_slot starts the "
        "stream when the slot has changes.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        continue_stream()

    return job
