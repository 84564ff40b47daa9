-- later: an instant plus a duration, in seconds: a day is 24 hours whatever the session's time zone does that night.
CREATE OR REPLACE FUNCTION fencerow.later(p_at timestamptz, p_duration interval) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $body$ SELECT p_at + make_interval(secs => extract(epoch FROM p_duration)::double precision) $body$;
