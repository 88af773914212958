"""A budget: what one operation of ours may cost in process, in microseconds."""

import statistics
from collections.abc import Callable, Sequence

import attrs

__all__ = ("Budget", "Cost", "run_budget")


@attrs.frozen
class Budget:
    """*measure* returns the microseconds per operation of one run of about *weight* operations.

    Without a *goal* it is told and not judged.
    """

    name: str
    goal: float | None
    weight: int
    measure: Callable[[int], float]

    def quick(self) -> "Budget":
        """The same with a quarter of the operations."""
        return attrs.evolve(self, weight=self.weight // 4)


@attrs.frozen
class Cost:
    """The microseconds per operation of each round."""

    budget: Budget
    rounds: Sequence[float]

    @property
    def microseconds(self) -> float:
        """The median round."""
        return statistics.median(self.rounds)


def run_budget(budget: Budget, rounds: int) -> Cost:
    """Measure *rounds* times, after a short run that warms everything up."""
    budget.measure(max(1, budget.weight // 10))
    return Cost(budget, [budget.measure(budget.weight) for _ in range(rounds)])
