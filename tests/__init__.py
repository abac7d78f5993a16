"""The tests: a folder for each folder of the code, and whole runs in pipelines/runs, faults,
security and extension.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
