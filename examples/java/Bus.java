import java.util.Map;

/**
 * A connection to an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on libzmq-java. What it asked for ends with it.
 */
public final class Bus extends Connection {
    /** Connects and is greeted, in at most 3 s. */
    public Bus() throws Failure {
        connect("bus", Map.of(), "HELLO", "EAR/1");
    }

    /** Wants a URL. The fields are those of FETCH: {@code Map.of("priority", "high", "timeout", "5")}. */
    public void fetch(String handler, String request, String url, Map<String, String> fields) throws Failure {
        say(fields, "FETCH", handler, request, url);
    }

    /** Nothing under the handler is wanted any more. Answered with REMOVED and how many requests had not ended. */
    public void remove(String handler) throws Failure {
        say(Map.of(), "REMOVE", handler);
    }

    /** One request is not wanted any more. Answered with CANCELLED. */
    public void cancel(String handler, String request) throws Failure {
        say(Map.of(), "CANCEL", handler, request);
    }

    /** Hears what becomes of a handler's requests, or with a slash at its end of all below. Answered with ANSWER. */
    public void subscribe(String pattern) throws Failure {
        say(Map.of(), "SUBSCRIBE", pattern);
        say(Map.of(), "QUERY", "ping"); // SUBSCRIBE itself is not answered
    }

    /** Unacknowledged terminals are in the way of the next. */
    public void acknowledge(Message message) throws Failure {
        if (message.fields.get("seq") != null) {
            say(Map.of(), "ACK", message.fields.get("seq"));
        }
    }
}
