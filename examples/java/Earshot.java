import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.zeromq.ZMQ;

/**
 * Client of an Earshot bus (protocols/1-core.md), on libzmq-java: fetch URL, cancel HANDLER, or watch HANDLER [COUNT].
 * Closing it removes its requests.
 */
final class Earshot implements AutoCloseable {
    private static final int GREETING_MS = 15_000, SILENCE_MS = 5000;

    private final ZMQ.Context context = ZMQ.context(1);
    private final ZMQ.Socket socket = context.socket(ZMQ.DEALER);
    private long sent;

    /** Message from the broker: the words of its first line, its fields, and its second frame. */
    record Message(List<String> words, Map<String, String> fields, byte[] frame) {
        boolean is(String... verbs) {
            return List.of(verbs).contains(words.get(0));
        }

        boolean isTerminal() {
            return is("RESULT", "FAILED");
        }

        /** Returns the body of a RESULT. Call it before {@link #acknowledge}, which lets the broker delete the file. */
        byte[] body() throws IOException {
            if (fields.containsKey("pull")) {
                throw new IOException("this bus belongs to another user, and this example cannot read its files");
            }
            return fields.containsKey("file") ? Files.readAllBytes(Path.of(fields.get("file"))) : frame;
        }
    }

    void connect() throws IOException {
        // An empty variable counts as unset.
        String runtime = System.getenv().getOrDefault("EARSHOT_RUNTIME", "");
        String parent = System.getenv().getOrDefault("XDG_RUNTIME_DIR", "");
        if (runtime.isEmpty() && parent.isEmpty()) {
            throw new IOException("set EARSHOT_RUNTIME to the directory of the bus");
        }
        runtime = runtime.isEmpty() ? parent + "/earshot" : runtime;
        socket.setLinger(500);
        socket.setReceiveTimeOut(GREETING_MS);
        // One connection: the next broker would not know this session. With -1 libzmq drops messages that have arrived.
        socket.setReconnectIVL(3_600_000);
        socket.connect("ipc://" + runtime + "/bus");
        send("HELLO", "EAR/1");
        understand(read("no broker answers in " + runtime + ": start one with `earshot serve`"));
        socket.setReceiveTimeOut(SILENCE_MS);
    }

    void send(String... words) throws IOException {
        // A line feed in a word would inject fields into the message.
        if (!Arrays.stream(words).allMatch(word -> word.matches("[^\\x00-\\x20\\x7f]+"))) {
            throw new IOException("a URL or name is empty, or has a space or control character");
        }
        // The answer to a message with a number names it.
        String number = words[0].equals("HELLO") || words[0].equals("ACK") ? "" : "number: " + ++sent + "\n";
        socket.send((String.join(" ", words) + "\n" + number).getBytes(ISO_8859_1), 0);
    }

    /** Returns the next message. A broker that has ended sends none, so a QUERY checks it after some silence. */
    Message receive() throws IOException {
        byte[] head = socket.recv();
        if (head == null) {
            send("QUERY", "ping");
            head = read("the broker is gone: start one with `earshot serve`");
        }
        return understand(head);
    }

    void acknowledge(Message message) throws IOException {
        send("ACK", message.fields.get("seq"));
    }

    @Override
    public void close() {
        socket.close();
        context.term();
    }

    /** Returns the next head. Fails with these words after some silence. */
    private byte[] read(String silence) throws IOException {
        byte[] head = socket.recv();
        if (head == null) {
            throw new IOException(silence);
        }
        return head;
    }

    /** Returns the message with this head. Fails if it is an ERROR. */
    private Message understand(byte[] head) throws IOException {
        String[] lines = new String(head, ISO_8859_1).split("\n\n", 2)[0].split("\n");
        Map<String, String> fields = new HashMap<>();
        for (int index = 1; index < lines.length; index++) {
            String[] field = lines[index].split(": *", 2);
            fields.put(field[0], field[1]);
        }
        byte[] frame = socket.hasReceiveMore() ? socket.recv() : new byte[0];
        Message message = new Message(List.of(lines[0].split(" ")), fields, frame);
        if (message.is("ERROR")) {
            throw new IOException(message.words.get(1) + ": " + fields.get("detail"));
        }
        return message;
    }

    /** Writes the body of a URL to standard output. */
    private void fetch(String url) throws IOException {
        // All programs of the user share the handler names, so a random part keeps this one unique.
        send("FETCH", "java/" + UUID.randomUUID(), "1", url);
        Message message = receive();
        while (!message.isTerminal()) {
            message = receive();
        }
        if (message.is("RESULT")) {
            write(message.body());
        }
        acknowledge(message);
        if (message.is("FAILED")) {
            String reason = message.words.get(3) + " " + message.fields.getOrDefault("status", "");
            throw new IOException(url + ": " + message.fields.get("detail") + " (" + reason.trim() + ")");
        }
    }

    /** Removes all requests of a handler, whichever program made them. */
    private void cancel(String handler) throws IOException {
        send("REMOVE", handler);
        Message message = receive();
        while (!message.is("REMOVED")) {
            message = receive();
        }
        write(("removed " + message.words.get(2) + "\n").getBytes(ISO_8859_1));
    }

    /** Prints a line for each result of a handler: handler, request, status or code, and URL. */
    private void watch(String handler, long count) throws IOException {
        send("SUBSCRIBE", handler);
        for (long left = count; left > 0; ) {
            Message message = receive();
            if (message.is("OK")) { // of SUBSCRIBE
                System.err.println("earshot: listening to " + handler);
            } else if (message.isTerminal()) {
                String words = String.join(" ", message.words.subList(1, message.words.size()));
                write((words + " " + message.fields.getOrDefault("url", "-") + "\n").getBytes(ISO_8859_1));
                acknowledge(message);
                left--;
            }
        }
    }

    /** Writes to standard output. System.out itself throws nothing. */
    private static void write(byte[] bytes) throws IOException {
        System.out.writeBytes(bytes);
        if (System.out.checkError()) {
            throw new IOException("cannot write to standard output");
        }
    }

    public static void main(String[] words) {
        try (Earshot bus = new Earshot()) {
            String command = words.length > 1 ? words[0] + words.length : "";
            String count = words.length > 2 ? words[2] : "" + Long.MAX_VALUE;
            if (!command.matches("fetch2|cancel2|watch[23]") || !count.matches("[0-9]{1,19}")) {
                throw new IOException("usage: Earshot fetch URL | cancel HANDLER | watch HANDLER [COUNT]");
            }
            bus.connect();
            switch (words[0]) {
                case "fetch" -> bus.fetch(words[1]);
                case "cancel" -> bus.cancel(words[1]);
                default -> bus.watch(words[1], Long.parseLong(count));
            }
        } catch (IOException | RuntimeException error) {
            System.err.println("earshot: " + error.getMessage());
            System.exit(1);
        }
    }
}
