-- fate: what becomes of a job whose attempt did not complete: 'back', 'failed' or 'cancelled'. The one exhaustion rule,
-- for outcomes of a live handler and for losses alike.
--   released, snoozed   give the charge back and never exhaust
--   p_final             the outcome itself says that no further attempt helps (invalid input, Fail)
--   a cancel request    wins over any return: the handler has stopped
CREATE OR REPLACE FUNCTION fencerow.fate(
  p_kind text, p_final boolean, p_cancel_requested boolean, p_attempt integer, p_max_attempts integer, p_on_lost text
) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $body$
  SELECT CASE
    WHEN p_kind = 'cancelled' THEN 'cancelled'
    WHEN p_final THEN 'failed'
    WHEN p_cancel_requested THEN 'cancelled'
    WHEN p_kind IN ('released', 'snoozed') THEN 'back'
    WHEN p_attempt >= p_max_attempts THEN 'failed'
    WHEN p_kind = 'lost' AND p_on_lost = 'fail' THEN 'failed'
    ELSE 'back'
  END
$body$;
