"""Long runs: a campaign of random faults, memory over a million jobs, start and stop a thousand times, latencies."""
