"""Celery tasks of runs. A lost message loses nothing: the next one goes on where the last one stopped."""

from celery import shared_task

from apps.runs import backfill, curve_copies, usage


@shared_task(name="runs.usage", ignore_result=True)
def count_usage() -> None:
    """Count what runs have used."""
    usage.count_usage()


@shared_task(name="runs.summaries", ignore_result=True)
def summarize_older_tasks() -> None:
    """Summarize curves of tasks from before there were summaries."""
    backfill.summarize_older_tasks()


@shared_task(name="runs.curves", ignore_result=True)
def copy_curves() -> None:
    """Copy points of tasks into what curves are compared from."""
    curve_copies.copy_curves()
