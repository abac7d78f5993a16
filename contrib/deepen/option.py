"""`beamrank run --max-inferences N --deepen`: the cascade whose mono goes deeper where the limit
leaves room.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from beamrank.config.run import RunConfig
from beamrank.config.yaml import check_document
from beamrank.errors import ConfigError

if TYPE_CHECKING:
    from beamrank.commit.plan import Plan


def with_deeper(
    config: RunConfig,
    max_inferences: int | None,
    *,
    deepen: Annotated[
        bool,
        typer.Option(
            "--deepen",
            help="Spend --max-inferences: all topics are scored to a first depth, then some "
            "deeper, up to mono.k.",
        ),
    ] = False,
) -> RunConfig:
    """The configuration with a stage after the first mono that goes on to its depth, as far as the
    limit allows.

    Raises:
        ConfigError: there is no limit or no mono, or the limit is too low.
    """
    if not deepen:
        return config
    place = next(
        (place for place, stage in enumerate(config.cascade) if stage.kind == "mono"), None
    )
    if max_inferences is None or place is None:
        missing = (
            "a stage `mono`, which it deepens"
            if place is None
            else "--max-inferences, which it spends"
        )
        raise ConfigError(f"--deepen needs {missing}")
    # They take seconds to import.
    from pipelines.plan.make_plan import planned

    before, (mono, *later) = config.cascade[:place], config.cascade[place:]
    plan, _ = planned(config)
    topics, bounds = len(plan.topics), _inferences(plan)
    left = max_inferences - topics * sum(
        count for name, count in bounds.items() if name != mono.name
    )
    if left >= topics * bounds[mono.name]:
        return config
    inputs = bounds[mono.name] // mono.section.k
    # The next stage receives docs that were scored.
    least = later[0].section.k if later else 1
    if left < topics * least * inputs:
        enough = max_inferences - left + topics * least * inputs
        raise ConfigError(
            f"--max-inferences {max_inferences:,} leaves {mono.name} {max(0, left):,} for "
            f"{topics:,} topics, too few to score the first {least} candidates of each: give at "
            f"least {enough:,}, or lower k of later stages"
        )
    first = max(least, left // 2 // (topics * inputs))
    deeper = {"deeper": {"name": f"{mono.name}-deeper", "k": mono.section.k, "inferences": left}}
    stages = [
        *before,
        mono._replace(section=mono.section.model_copy(update={"k": first})),
        deeper,
        *later,
    ]
    given = {name: getattr(config, name) for name in config.model_fields_set}
    return check_document(given | {"cascade": stages}, RunConfig, "--deepen")


def _inferences(plan: "Plan") -> dict[str, int]:
    """The most inferences of each stage for a topic, as `beamrank plan` counts them."""
    from models.stages.core import open_stages

    return {stage.name: stage.cost(1) for stage in open_stages(plan.stages)}
