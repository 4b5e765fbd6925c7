import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.UUID;

/**
 * Connection to an Earshot bus, protocol EAR/1 (protocols/1-CLIENT.md), on libzmq-java. Closing it removes its requests.
 */
public final class Bus extends Connection {
    /** Interval between two checks that the connection of a session with a lease stands, in milliseconds. */
    private static final int LOOK_MS = 1000;
    private static final int PIECE_BYTES = 256 << 10;
    private static final int OPEN_READS = 4;

    /** Message that each reply answers, and the number of their common operands. */
    private enum Question {
        FETCH(2), REMOVE(1), CANCEL(2), QUERY(1);

        private static final Map<String, Question> OF = Map.of(
                "RESULT", FETCH, "FAILED", FETCH, "REMOVED", REMOVE, "CANCELLED", CANCEL, "ANSWER", QUERY);
        private final int operands;

        Question(int operands) {
            this.operands = operands;
        }
    }

    /** Message of the log. */
    private record Sent(long number, List<String> words, byte[] head) {
    }

    private final Map<String, String> hello = new HashMap<>();
    private final int lease;
    private final String token;
    private long sent;
    private long replies;
    private String acknowledged;
    /** Number of times the session was resumed. */
    private int resumptions;
    /** Messages of a session with a lease that the broker may not have received. */
    private List<Sent> log = new ArrayList<>();
    /** Messages received while a body was read. */
    private final Queue<Message> waiting = new ArrayDeque<>();

    /** Connects and performs the handshake, within 3 s. */
    public Bus() throws Failure {
        this(false, 0);
    }

    /**
     * Connects and performs the handshake, within 3 s.
     *
     * @param pull whether bodies come over the connection and not in files, for programs that cannot open the files of
     *     the broker
     * @param lease seconds for which the broker keeps the session of a broken connection, which {@link #receive} resumes;
     *     or 0
     */
    public Bus(boolean pull, int lease) throws Failure {
        this.lease = lease;
        if (lease > 0) {
            hello.putAll(Map.of("client", "java-" + UUID.randomUUID(), "lease", Integer.toString(lease)));
            serveOneConnection();
        }
        if (pull) {
            hello.put("bodies", "pull");
        }
        token = connect("bus", hello, "HELLO", "EAR/1").fields.get("token");
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
            acknowledged = message.fields.get("seq");
            say(Map.of(), "ACK", acknowledged);
        }
    }

    @Override
    public Message receive() throws Failure {
        Message message = waiting.poll();
        while (message == null) {
            message = receiveOrResume();
        }
        return message;
    }

    /** Writes the parts of a body with the field {@code pull}, in order. */
    void pull(Message message, Message.Sink sink) throws Failure, IOException {
        String number = message.fields.get("seq");
        long length = Long.parseLong(message.fields.get("length"));
        MessageDigest digest = sha256();
        Map<Long, byte[]> parts = new HashMap<>();
        int connection = resumptions;
        long asked = 0;
        long taken = 0;
        while (taken < length) {
            if (connection != resumptions) { // The broken connection had READs without an answer.
                connection = resumptions;
                asked = taken;
                parts.clear();
            } else if (asked < Math.min(length, taken + OPEN_READS * PIECE_BYTES)) {
                long size = Math.min(PIECE_BYTES, length - asked);
                say(Map.of(), "READ", number, Long.toString(asked), Long.toString(size));
                asked += PIECE_BYTES;
            } else {
                keepData(number, parts);
                for (byte[] part = parts.remove(taken); part != null; part = parts.remove(taken)) {
                    if (part.length != Math.min(PIECE_BYTES, length - taken)) {
                        throw new Failure("a part of the body is missing", FAILED);
                    }
                    digest.update(part);
                    sink.write(part);
                    taken += part.length;
                }
            }
        }
        String hash = message.fields.get("sha-256");
        if (hash != null && !hash.equals(HexFormat.of().formatHex(digest.digest()))) {
            throw new Failure("the body has another hash than its result", FAILED);
        }
    }

    private static MessageDigest sha256() {
        try {
            return MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Receives a message. Keeps the bytes of DATA by their offset, and other messages for {@link #receive}. */
    private void keepData(String number, Map<Long, byte[]> parts) throws Failure {
        Message message = receiveOrResume();
        if (message == null || message.verb.equals("PROGRESS")) {
            return;
        }
        if (!message.verb.equals("DATA")) {
            waiting.add(message);
        } else if (message.operands.get(0).equals(number)) {
            parts.put(Long.parseLong(message.operands.get(1)), message.inline());
        }
    }

    @Override
    public void close() {
        if (token != null) {
            transmit("BYE\n".getBytes());
        }
        super.close();
    }

    @Override
    void say(Map<String, String> fields, String... words) throws Failure {
        byte[] head = head(fields, words);
        sent++;
        if (token != null && !words[0].equals("ACK") && !words[0].equals("READ")) {
            log.add(new Sent(sent, List.of(words), head));
        }
        if (!transmit(head) && token != null) {
            resume();
        }
    }

    /** Returns the next message, or null after it has resumed the session over a new connection. */
    private Message receiveOrResume() throws Failure {
        try {
            Message message = super.receive();
            confirm(message);
            return message;
        } catch (Unreachable failure) {
            if (token == null) {
                throw failure;
            }
            resume();
            return null;
        }
    }

    @Override
    byte[][] await(int milliseconds) throws Failure {
        if (token == null) {
            return super.await(milliseconds);
        }
        for (int left = milliseconds; left > 0; left -= LOOK_MS) {
            byte[][] frames = super.await(LOOK_MS);
            if (frames != null) {
                return frames;
            }
            if (!isConnected()) {
                throw new Unreachable("the broker is gone: start one with `earshot serve`");
            }
        }
        return null;
    }

    /** Connects again, resumes the session, and repeats the messages that the broker has not received. */
    private void resume() throws Failure {
        long end = System.nanoTime() + lease * 1_000_000_000L;
        for (long pause = 10; System.nanoTime() < end; pause = Math.min(2 * pause, 1000)) {
            pause(pause);
            socket.close();
            socket = makeSocket();
            serveOneConnection();
            Map<String, String> state = new HashMap<>(hello);
            state.putAll(Map.of("token", token, "replies", Long.toString(replies)));
            String resumed;
            try {
                resumed = greet("bus", state, "HELLO", "EAR/1").fields.get("resumed");
            } catch (Unreachable failure) {
                continue;
            }
            if (resumed == null) {
                throw new Failure("the session has ended: ask again", NO_BROKER);
            }
            if (sendAgain(Long.parseLong(resumed))) {
                return;
            }
        }
        throw new Failure("the broker is gone: start one with `earshot serve`", NO_BROKER);
    }

    private static void pause(long milliseconds) throws Failure {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interruption) {
            Thread.currentThread().interrupt();
            throw new Failure("interrupted", FAILED);
        }
    }

    private boolean sendAgain(long resumed) throws Failure {
        resumptions++;
        sent = resumed;
        List<Sent> unheard = log.stream().filter(entry -> entry.number > resumed).toList();
        log = new ArrayList<>();
        boolean isSent = true;
        if (acknowledged != null) {
            sent++;
            isSent = transmit(head(Map.of(), "ACK", acknowledged));
        }
        for (Sent entry : unheard) {
            log.add(new Sent(++sent, entry.words, entry.head));
            isSent = isSent && transmit(entry.head);
        }
        return isSent;
    }

    /** Counts a reply, and drops messages from the log: an answer to one shows that the broker has received all before it. */
    private void confirm(Message message) {
        if (!message.fields.containsKey("seq") && !List.of("DATA", "PROGRESS", "GOODBYE").contains(message.verb)) {
            replies++;
        }
        Question question = Question.OF.get(message.verb);
        if (question == null) {
            return;
        }
        List<String> asked = new ArrayList<>(message.operands.subList(0, question.operands));
        asked.add(0, question.name());
        for (int index = 0; index < log.size(); index++) {
            if (log.get(index).words.subList(0, asked.size()).equals(asked)) {
                log.subList(0, index + 1).clear();
                return;
            }
        }
    }
}
