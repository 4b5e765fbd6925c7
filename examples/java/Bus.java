import java.util.Map;

/**
 * Connection to an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on libzmq-java. Closing it removes its requests.
 */
public final class Bus extends Connection {
    /** Connects and performs the handshake, within 3 s. */
    public Bus() throws Failure {
        connect("bus", Map.of(), "HELLO", "EAR/1");
    }

    /** Requests a URL. The fields are those of FETCH: {@code Map.of("priority", "high", "timeout", "5")}. */
    public void fetch(String handler, String request, String url, Map<String, String> fields) throws Failure {
        say(fields, "FETCH", handler, request, url);
    }

    /** Removes a handler with all its requests. The answer is REMOVED with the number of pending requests. */
    public void remove(String handler) throws Failure {
        say(Map.of(), "REMOVE", handler);
    }

    /** Cancels one request. The answer is CANCELLED. */
    public void cancel(String handler, String request) throws Failure {
        say(Map.of(), "CANCEL", handler, request);
    }

    /** Subscribes to a handler, or with a trailing slash to all handlers below it. The answer is ANSWER. */
    public void subscribe(String pattern) throws Failure {
        say(Map.of(), "SUBSCRIBE", pattern);
        say(Map.of(), "QUERY", "ping"); // SUBSCRIBE has no answer
    }

    /** Acknowledges a terminal. Unacknowledged terminals fill the delivery window. */
    public void acknowledge(Message message) throws Failure {
        if (message.fields.get("seq") != null) {
            say(Map.of(), "ACK", message.fields.get("seq"));
        }
    }
}
