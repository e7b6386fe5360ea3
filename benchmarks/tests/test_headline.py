from benchmarks.tests.suites.ledgers import ledger_row

from icda.results.ledger import write_ledger
from icda_bench.headline import CONTESTS, headline_table

ASKED = "pool,seed,minority,way,person,answers,worst\n"


def write_results(folder):
    """Ledgers in which cross entropy has 50 %, a rival 60 and 70 % in two settings, and our method 80 %."""
    for contest in CONTESTS:
        rows = [
            ledger_row(task=contest.task, method=method, options=options, seed=0, **{contest.metric: value})
            | dict(contest.where)
            for method, options, value in (
                ("cross_entropy", "", "0.5"),
                ("focal", "gamma=1", "0.6"),
                ("focal", "gamma=2", "0.7"),
                ("robust", "", "0.8"),
                *((name, "", "0.99") for name in contest.given_more),
            )
        ]
        write_ledger(folder / f"{contest.ledger}.csv", rows)


def test_the_best_setting_of_the_best_rival_stands_beside_ours_and_who_was_given_more_is_no_rival(tmp_path):
    write_results(tmp_path)
    lines = headline_table(tmp_path, "docs/").splitlines()[2:]
    assert len(lines) == len(CONTESTS)
    for line, contest in zip(lines, CONTESTS, strict=True):
        assert f"(docs/{contest.link})" in line
        assert "| 50 % | 70 % (focal) | 80 % (" in line


def test_answers_are_judged_on_sets_where_nothing_was_decided(tmp_path):
    write_results(tmp_path)
    rows = [
        f"{pool},1,0.1,{way},{person},{answers},{worst}\n"
        for pool, ours in (("waterbirds", 0.8), ("digits", 0.2))
        for way, person, answers, worst in (
            ("none", "", 0, 0.2),
            ("all", "", 500, 1.0),
            ("ours", "right", 24, ours),
            ("random", "right", 24, 0.6),
        )
    ]
    (tmp_path / "asking.csv").write_text(ASKED + "".join(rows))
    first = headline_table(tmp_path).splitlines()[2]
    assert "| 0 % | 50 % (random questions) | 75 % |" in first
