-- rouse: this lease's process is awake and needs no NOTIFY.
CREATE OR REPLACE FUNCTION fencerow.rouse(p_lease bigint) RETURNS void
LANGUAGE sql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
  DELETE FROM fencerow.asleep AS a WHERE a.lease_id = p_lease
$body$;
