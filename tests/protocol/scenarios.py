"""The scenarios of the schedules."""

from collections.abc import Mapping

from tests.protocol.simulation import Member, Scenario

_DAY = 25 * 3600.0
_STORE = ("crash", "sleep", "lose", "lose", "resend", "delay")
_SHARES = tuple(Member("share", share=(one, 3), machine=f"m{one}") for one in range(3))
_TWO = (Member("launch"), Member("launch", machine="m2"))
_PLANS = (Member("launch"), Member("launch", "B", "m2"))
_GC = (Member("launch", "B"), Member("gc", machine="m2"))

SCENARIOS: Mapping[str, Scenario] = {
    "two launchers": Scenario(_TWO, differ=True),
    "workers outlive their launcher": Scenario(_TWO, differ=True, by_worker=True),
    "power": Scenario((Member("launch"),) * 2, differ=True, faults=("power", "power", "crash")),
    "parts": Scenario(_TWO, in_parts=True),
    "two plans": Scenario(_PLANS, differ=True),
    "two plans in parts": Scenario(_PLANS, in_parts=True),
    "gc": Scenario(_GC, before=(("B", 110), ("A", 0)), differ=True),
    "gc, one plan": Scenario(
        (Member("launch"), Member("gc", machine="m2")), before=(("A", 76),), by_worker=True
    ),
    "gc, clocks apart": Scenario(
        _GC, before=(("B", 110), ("A", 0)), offsets=(("m2", _DAY),), differ=True
    ),
    "shares": Scenario(_SHARES, shards=3, differ=True),
    "shares without answers": Scenario(_SHARES, shards=3, down=2),
    "store": Scenario(_TWO, at_store=True, differ=True, faults=_STORE),
    "store, parts": Scenario(_TWO, at_store=True, in_parts=True, faults=_STORE),
    "store, two plans": Scenario(_PLANS, at_store=True, differ=True, faults=("crash", "lose")),
    "store, shares": Scenario(_SHARES, shards=3, at_store=True, differ=True, faults=_STORE),
    "store, gc": Scenario(_GC, at_store=True, before=(("B", 60), ("A", 0)), faults=_STORE),
}
