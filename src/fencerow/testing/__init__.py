"""
Testing against a real PostgreSQL of one's own; nothing here touches an existing server.

plugin: fixtures for pytest, loaded through its entry point. space: what they give. clock: a clock that tests move.
sessions: sessions that wait for locks while the test looks on.
"""
