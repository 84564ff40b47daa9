-- held_digest: SHA-256 over 'job:generation' of every ticket under a lease, in job order; a worker computes the same over
-- what it holds, and a difference means that a claim or a settlement was lost on the way.
CREATE OR REPLACE FUNCTION fencerow.held_digest(p_lease bigint) RETURNS text
LANGUAGE sql STABLE
AS $body$
  SELECT encode(sha256(convert_to(coalesce(string_agg(r.job_id || ':' || r.generation, ',' ORDER BY r.job_id), ''), 'UTF8')), 'hex')
  FROM fencerow.running AS r WHERE r.lease_id = p_lease
$body$;
