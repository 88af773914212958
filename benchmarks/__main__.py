"""Run the benchmarks: ``python -m benchmarks [CASE…] [--rounds N] [--json FILE] [--quick]``."""

import json
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console

from benchmarks import all_hooks, codec_cost, engine_cost, images, overlap, recording, streaming, throughput
from benchmarks.budgets import Budget, Cost, run_budget
from benchmarks.children import start
from benchmarks.overlap import SHARE_GOALS
from benchmarks.races import Outcome, Race, run_race
from benchmarks.schedulers import CONTESTS, Contest, Standing, run_contest
from benchmarks.tables import (
    cost_record,
    cost_table,
    outcome_record,
    outcome_table,
    share_table,
    standing_record,
    standing_table,
)

RACES = (
    *throughput.RACES,
    *all_hooks.RACES,
    *recording.RACES,
    *streaming.RACES,
    *images.RACES,
    *overlap.RACES,
)
TABLE_WIDTH = 120
BUDGETS = (*engine_cost.BUDGETS, *codec_cost.BUDGETS)


@click.command()
@click.argument("case", nargs=-1)
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True, help="Measurements per case.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here too.")
@click.option("--quick", is_flag=True, help="One short round: shows that it runs, not how fast.")
@click.option("--list", "only_list", is_flag=True, help="Name the cases and stop.")
def main(case: tuple[str, ...], rounds: int, path: Path | None, quick: bool, only_list: bool) -> None:
    """Measure the CASEs whose name begins with one of the given words; all of them without any."""
    races = [race for race in RACES if chosen(race.name, case)]
    budgets = [budget for budget in BUDGETS if chosen(budget.name, case)]
    contests = [contest for contest in CONTESTS if chosen(contest.name, case)]
    if not races and not budgets and not contests:
        raise click.BadParameter(f"no case begins with {' or '.join(case)}; --list names them", param_hint="CASE")
    if only_list:
        for named in (*races, *budgets, *contests):
            click.echo(named.name)
        return
    if quick:
        rounds, races, budgets = 1, [race.quick() for race in races], [budget.quick() for budget in budgets]
        contests = [contest.quick() for contest in contests]
    outcomes, costs = measure(races, budgets, rounds)
    standings = compete(contests, rounds)
    show(outcomes, costs, standings)
    if path is not None:
        records = [*map(outcome_record, outcomes), *map(cost_record, costs), *map(standing_record, standings)]
        path.write_text(json.dumps(records, indent=2) + "\n")


def chosen(name: str, words: tuple[str, ...]) -> bool:
    return not words or any(name.startswith(word) for word in words)


def measure(races: list[Race], budgets: list[Budget], rounds: int) -> tuple[list[Outcome], list[Cost]]:
    outcomes: list[Outcome] = []
    progress = Console(stderr=True)
    with ExitStack() as running:
        if races:
            ours = running.enter_context(start("benchmarks.our_driver"))
            peers = running.enter_context(start("benchmarks.peer_driver"))
            for race in races:
                progress.print(f"{race.name} …", highlight=False)
                outcomes.append(run_race(race, rounds, ours, peers))
    costs: list[Cost] = []
    for budget in budgets:
        progress.print(f"{budget.name} …", highlight=False)
        costs.append(run_budget(budget, rounds))
    return outcomes, costs


def compete(contests: list[Contest], rounds: int) -> list[Standing]:
    standings: list[Standing] = []
    progress = Console(stderr=True)
    with ExitStack() as running:
        driver = running.enter_context(start("benchmarks.our_driver")) if any(c.served for c in contests) else None
        for contest in contests:
            progress.print(f"{contest.name} …", highlight=False)
            standings.append(run_contest(contest, rounds, driver))
    return standings


def show(outcomes: list[Outcome], costs: list[Cost], standings: list[Standing]) -> None:
    console = Console(width=max(Console().width, TABLE_WIDTH))
    if outcomes:
        console.print(outcome_table(outcomes))
    if overlapped := [outcome for outcome in outcomes if outcome.race.name in SHARE_GOALS]:
        console.print(share_table(overlapped))
    if costs:
        console.print(cost_table(costs))
    if standings:
        console.print(standing_table(standings))


if __name__ == "__main__":
    main()
