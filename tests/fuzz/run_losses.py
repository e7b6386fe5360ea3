"""One call of each kind, judged."""

from fuzz.judge import VALUE, judge
from fuzz.loss_calls import LossCall, StatisticsCall
from icda.statistics import ClassStatistics


def try_loss(call: LossCall) -> tuple[str, str]:
    made: list = []
    outcome = judge(lambda: made.append(call.make()))
    if outcome[0] != VALUE:
        return outcome
    prepared: list = []
    outcome = judge(lambda: prepared.append(call.prepare(made[0])))
    if outcome[0] != VALUE:
        return outcome
    run = prepared[0]
    if call.method == "adjustment":  # -inf is how it rules a class without samples out
        return judge(lambda: run().double().clamp(min=-1e30), made[0])
    return judge(run, made[0])


def try_statistics(call: StatisticsCall) -> tuple[str, str]:
    statistics = ClassStatistics(3, 4, call.covariance)  # type: ignore[arg-type]
    return judge(call.prepare(statistics), statistics)
