-- Follows a change by hand, as `follow_change` of 0001_outbox.sql does.
CREATE OR REPLACE FUNCTION {schema}.follow_change() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    was record;
    has record;
BEGIN
    SELECT {old} INTO was;
    SELECT {new} INTO has;
    IF was IS NOT DISTINCT FROM has THEN
        RETURN NULL;
    END IF;
    -- Another key is another message.
    IF was.id IS DISTINCT FROM has.id THEN
        INSERT INTO {schema}.pending_edit (lane, message_id)
        VALUES ({schema}.lane_of(was.integration_type), was.id), ({schema}.lane_of(has.integration_type), has.id);
        RETURN NULL;
    END IF;
    IF {schema}.is_waiting(has.status) THEN
        UPDATE {schema}.delivery
        SET due_at = has.due_at, since = has.due_at, integration = has.integration_type,
            lane = {schema}.lane_of(has.integration_type), rescues = 0, state = {schema}.state_of(has.status)
            {reopened}
        WHERE message_id = has.id AND claim IS NULL;
    ELSE
        DELETE FROM {schema}.delivery WHERE message_id = has.id AND claim IS NULL;
    END IF;
    IF FOUND OR EXISTS (SELECT FROM {schema}.delivery WHERE message_id = has.id AND claim IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.pending_edit (lane, message_id)
    VALUES ({schema}.lane_of(was.integration_type), has.id);
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION {schema}.follow_change() FROM PUBLIC;
CREATE TRIGGER postroom_follow AFTER UPDATE OF {watched} ON {table}
    FOR EACH ROW
    WHEN (current_setting('core_outbox.relay', true) IS DISTINCT FROM 'on' AND ({changed}))
    EXECUTE FUNCTION {schema}.follow_change();
