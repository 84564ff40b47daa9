-- now: the only clock. STABLE so that it can bound an index scan; its body moves on during a statement, so that a
-- decision taken after a lock wait sees the time after the wait. Tests replace this function; a session cannot.
CREATE OR REPLACE FUNCTION fencerow.now() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$ SELECT clock_timestamp() $body$;
