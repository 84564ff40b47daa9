"""What other PostgreSQL job queues do when a worker that lost its job reports success: played, not argued."""
