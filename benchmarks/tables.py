"""What a benchmark run shows: one row per case, the goal beside what was reached."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from benchmarks.budgets import Cost
from benchmarks.jobs import Sample
from benchmarks.overlap import SHARE_GOALS, share_of_bound
from benchmarks.races import Outcome
from benchmarks.schedulers import SCHEDULERS, Standing

__all__ = (
    "cost_record",
    "cost_table",
    "outcome_record",
    "outcome_table",
    "share_table",
    "standing_record",
    "standing_table",
)


def outcome_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="lane steps per second, ours against the peer's driver (ratio: median and range)")
    for heading in ("case", "ours", "rival", "ratio", "goal", "ours CPU us", "rival CPU us"):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    for outcome in outcomes:
        ratios = sorted(outcome.ratios)
        spread = f"{outcome.ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        table.add_row(
            outcome.race.name,
            f"{median_of(outcome.ours).rate:.0f}",
            f"{median_of(outcome.peers).rate:.0f}",
            judged(spread, outcome.ratio >= outcome.race.goal),
            f">= {outcome.race.goal:g}",
            f"{median_of(outcome.ours).cpu_us:.1f}",
            f"{median_of(outcome.peers).cpu_us:.1f}",
        )
    return table


def share_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="share of the simulated greedy bound")
    for heading in ("case", "share", "goal"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for outcome in outcomes:
        share, goal = share_of_bound(outcome), SHARE_GOALS[outcome.race.name]
        table.add_row(outcome.race.name, judged(f"{share:.3f}", share >= goal), f">= {goal:g}")
    return table


def cost_table(costs: Sequence[Cost]) -> Table:
    table = Table(title="cost in process, microseconds (median and range)")
    for heading in ("case", "us", "goal"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for cost in costs:
        spread = f"{cost.microseconds:.2f} ({min(cost.rounds):.2f} to {max(cost.rounds):.2f})"
        goal = cost.budget.goal
        if goal is None:
            table.add_row(cost.budget.name, spread, "")
        else:
            table.add_row(cost.budget.name, judged(spread, cost.microseconds <= goal), f"<= {goal:g}")
    return table


def standing_table(standings: Sequence[Standing]) -> Table:
    """Rates as multiples of the eager one, each with its mean batch."""
    table = Table(title="schedulers, lane steps per second (mean batch)")
    for heading in ("case", *SCHEDULERS, "best"):
        table.add_column(heading, justify="left" if heading in {"case", "best"} else "right", no_wrap=True)
    for standing in standings:
        rates, batches = standing.rates, standing.batches
        cells = [f"{rates['eager']:.0f} ({batches['eager']:.1f})"]
        cells += [f"x {rates[name] / rates['eager']:.2f} ({batches[name]:.1f})" for name in SCHEDULERS[1:]]
        table.add_row(standing.contest.name.removeprefix("schedulers "), *cells, standing.best)
    return table


def outcome_record(outcome: Outcome) -> dict[str, object]:
    """The JSON form of a race; the rival is called the peer, also where it is our own driver."""
    record: dict[str, object] = {
        "case": outcome.race.name,
        "goal": outcome.race.goal,
        "ratio": outcome.ratio,
        "ratios": outcome.ratios,
        "ours": [sample.rate for sample in outcome.ours],
        "peer": [sample.rate for sample in outcome.peers],
        "cpu_us_ours": median_of(outcome.ours).cpu_us,
        "cpu_us_peer": median_of(outcome.peers).cpu_us,
    }
    if outcome.race.name in SHARE_GOALS:
        record |= {"share_of_bound": share_of_bound(outcome), "share_goal": SHARE_GOALS[outcome.race.name]}
    return record


def cost_record(cost: Cost) -> dict[str, object]:
    """The JSON form of a budget."""
    return {"case": cost.budget.name, "goal": cost.budget.goal, "us": cost.microseconds, "rounds": list(cost.rounds)}


def standing_record(standing: Standing) -> dict[str, object]:
    """The JSON form of a contest between schedulers."""
    return {"case": standing.contest.name, "rates": dict(standing.rates), "batches": dict(standing.batches)}


def median_of(samples: Sequence[Sample]) -> Sample:
    return sorted(samples, key=lambda sample: sample.rate)[len(samples) // 2]


def judged(text: str, reached: bool) -> Text:
    return Text(text, style="green" if reached else "red", no_wrap=True)
