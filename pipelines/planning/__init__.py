"""What a run will do: the plan, its cost, what remains of it, and who runs it."""
