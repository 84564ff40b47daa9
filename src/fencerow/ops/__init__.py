"""All database operations, by what they act on."""
