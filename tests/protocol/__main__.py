"""`python -m tests.protocol`: searches every configuration, and prints a row of each."""

from tests.protocol.configurations import CONFIGURATIONS
from tests.protocol.world import words

if __name__ == "__main__":
    for name, configuration in CONFIGURATIONS.items():
        found = configuration.search()
        figures = f"{found.states:,} | {found.steps:,} | {found.cpu_seconds:.1f}"
        holds = "holds" if found.violation is None else found.violation.invariant
        print(f"| {name} | {figures} | {found.peak_bytes / 1e6:,.0f} | {holds} |", flush=True)
        for label in () if found.violation is None else found.violation.trace:
            print(f"    {words(label)}")
