"""The program under test, shared by every test of the run."""

from tests.support.program import program

__all__ = ["program"]
