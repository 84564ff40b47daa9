-- channel: the NOTIFY channel of this space: a fixed prefix and its identity, so that any schema name fits in 63 bytes.
CREATE OR REPLACE FUNCTION fencerow.channel() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$ SELECT 'fencerow_' || replace(s.id::text, '-', '') FROM fencerow.space AS s $body$;
