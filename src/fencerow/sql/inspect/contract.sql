-- contract: which function set is installed, and the oldest client that it still serves.
CREATE OR REPLACE FUNCTION fencerow.contract(OUT contract integer, OUT oldest integer)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$ SELECT s.contract, s.oldest FROM fencerow.space AS s $body$;
