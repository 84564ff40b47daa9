-- lease_worker: the worker that a lease belongs or belonged to.
CREATE OR REPLACE FUNCTION fencerow.lease_worker(p_lease bigint) RETURNS text
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT coalesce((SELECT l.worker FROM fencerow.lease AS l WHERE l.id = p_lease),
                  (SELECT p.worker FROM fencerow.past_lease AS p WHERE p.id = p_lease))
$body$;
