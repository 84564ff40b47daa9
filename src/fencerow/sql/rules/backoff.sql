-- backoff: delay before the next attempt, for losses here and for outcomes in policy.py (one test holds both together).
-- Between a quarter of base * 2^attempt and all of it, never under base, never over cap; fraction picks the point.
-- The exponent is bounded before it is used, so no attempt number can overflow.
CREATE OR REPLACE FUNCTION fencerow.backoff(
  p_attempt integer, p_base interval, p_cap interval, p_fraction double precision DEFAULT random()
) RETURNS interval
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $body$
  SELECT make_interval(secs => low.s + (high.s - low.s) * least(greatest(p_fraction, 0), 1))
  FROM (SELECT extract(epoch FROM p_base)::double precision AS base, extract(epoch FROM p_cap)::double precision AS cap) AS given,
       LATERAL (SELECT least(cap, base * power(2, least(greatest(p_attempt, 0), 40))) AS s) AS high,
       LATERAL (SELECT least(high.s, greatest(base, high.s / 4)) AS s) AS low
$body$;
