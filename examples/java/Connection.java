import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import org.zeromq.ZMQ;

/** Connection of a client, {@link Bus}, or a worker, {@link WorkerBus}. */
abstract class Connection implements AutoCloseable {
    /** Error of the client. {@code status} is the exit code for it, the same as that of the command `earshot`. */
    public static class Failure extends Exception {
        private static final long serialVersionUID = 1;

        public final int status;

        public Failure(String message, int status) {
            super(message);
            this.status = status;
        }
    }

    /** The broker cannot be reached now. */
    static final class Unreachable extends Failure {
        private static final long serialVersionUID = 1;

        Unreachable(String message) {
            super(message, NO_BROKER);
        }
    }

    public static final int FAILED = 1;
    public static final int USAGE = 64;
    public static final int NO_BROKER = 69;

    static final int GREETING_MS = 3000;
    private static final int SILENCE_MS = 5000;
    private static final int LINGER_MS = 500;

    final ZMQ.Context context = ZMQ.context(1);
    ZMQ.Socket socket = makeSocket();
    /** Number of the last terminal. */
    private long heard;

    /** Waits for the next message without a time limit. Skips terminals that the broker redelivers with the same number. */
    public Message receive() throws Failure {
        while (true) {
            Message message = receiveAny();
            // The refusal of a durable request has no number, and needs no acknowledgement.
            if (!message.isTerminal() || message.fields.get("seq") == null) {
                return message;
            }
            long number = Long.parseLong(message.fields.get("seq"));
            if (number > heard) {
                heard = number;
                return message;
            }
        }
    }

    /** Waits for the next message. A broker that ends sends none, so a QUERY checks that it is alive after some silence. */
    Message receiveAny() throws Failure {
        byte[][] frames = await(SILENCE_MS);
        if (frames == null) {
            say(Map.of(), "QUERY", "ping");
            frames = await(SILENCE_MS);
        }
        if (frames == null) {
            throw new Unreachable("the broker is gone: start one with `earshot serve`");
        }
        return understand(frames);
    }

    @Override
    public void close() {
        socket.close();
        context.term();
    }

    /** Connects to the endpoint, sends the first message, and returns the answer. Closes the socket on failure. */
    final Message connect(String endpoint, Map<String, String> fields, String... words) throws Failure {
        try {
            return greet(endpoint, fields, words);
        } catch (Failure | RuntimeException failure) {
            close();
            throw failure;
        }
    }

    final Message greet(String endpoint, Map<String, String> fields, String... words) throws Failure {
        Path folder = Place.folder();
        lookAt(folder);
        socket.connect("ipc://" + folder + "/" + endpoint);
        byte[][] answer = transmit(head(fields, words)) ? await(GREETING_MS) : null;
        if (answer == null) {
            throw noBroker(folder);
        }
        return understand(answer);
    }

    final ZMQ.Socket makeSocket() {
        ZMQ.Socket made = context.socket(ZMQ.DEALER);
        made.setLinger(LINGER_MS);
        return made;
    }

    /** Limits the socket to one connection, so that messages for it never reach the next one. Without it a send fails. */
    final void serveOneConnection() {
        socket.setReconnectIVL(-1);
        socket.setImmediate(true);
        socket.setSendTimeOut(GREETING_MS);
        socket.setSndHWM(0);
    }

    /** Returns whether there is a connection. */
    final boolean isConnected() {
        return (socket.getEvents() & (ZMQ.Poller.POLLIN | ZMQ.Poller.POLLOUT)) != 0;
    }

    /** Fails unless the directory is trusted. */
    private static void lookAt(Path folder) throws Failure {
        try {
            if (Place.isTrusted(folder)) {
                return;
            }
        } catch (IOException error) {
            throw noBroker(folder);
        }
        String text = " is not a directory private to this user: remove it, or set EARSHOT_RUNTIME";
        throw new Failure(folder + text, NO_BROKER);
    }

    private static Failure noBroker(Path folder) {
        return new Unreachable("no broker answers in " + folder + ": start one with `earshot serve`");
    }

    /** Returns the head and the body of the next message, or null after a time-out. */
    byte[][] await(int milliseconds) throws Failure {
        socket.setReceiveTimeOut(milliseconds);
        byte[] head = socket.recv();
        if (head == null) {
            return null;
        }
        return new byte[][] {head, socket.hasReceiveMore() ? socket.recv() : new byte[0]};
    }

    /** Returns the message in these frames. Fails if it is an ERROR. */
    private Message understand(byte[][] frames) throws Failure {
        Message message = new Message(this, frames[0], frames[1]);
        if (!message.verb.equals("ERROR")) {
            return message;
        }
        String code = message.operands.get(0);
        if (code.equals("hello-required")) {
            throw new Failure("the broker has ended and another one is there: ask again", NO_BROKER);
        }
        if (code.equals("session-in-use")) {
            throw new Unreachable("the session is in use by another connection");
        }
        throw new Failure(code + ": " + message.fields.get("detail"), FAILED);
    }

    void say(Map<String, String> fields, String... words) throws Failure {
        transmit(head(fields, words));
    }

    /** Sends a head. Returns whether there was a connection for it. */
    final boolean transmit(byte[] head) {
        return socket.send(head, 0);
    }

    static byte[] head(Map<String, String> fields, String... words) throws Failure {
        // A line feed in a word would inject fields into the message.
        if (!Arrays.stream(words).allMatch(word -> word.matches("[^\\x00-\\x20\\x7f]+"))) {
            throw new Failure("a URL or name is empty, or has a space or control character in it", USAGE);
        }
        StringBuilder head = new StringBuilder(String.join(" ", words)).append('\n');
        fields.forEach((name, value) -> head.append(name).append(": ").append(value).append('\n'));
        return head.toString().getBytes(UTF_8);
    }
}
