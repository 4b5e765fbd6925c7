import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Message from the broker. */
public final class Message {
    /** RESULT, FAILED, PROGRESS, REMOVED, ANSWER … */
    public final String verb;
    /** Further words of the first line; of RESULT and FAILED: handler, request, status or code. */
    public final List<String> operands;
    public final Map<String, String> fields = new HashMap<>();
    /** Header fields of the HTTP response, one a line. */
    public final String http;

    private final Connection connection;
    private final byte[] body;

    Message(Connection connection, byte[] head, byte[] body) {
        this.connection = connection;
        String[] parts = new String(head, UTF_8).split("\n\n", 2);
        String[] lines = parts[0].split("\n");
        List<String> words = List.of(lines[0].split(" "));
        verb = words.get(0);
        operands = words.subList(1, words.size());
        for (String line : List.of(lines).subList(1, lines.length)) {
            String[] field = line.split(": *", 2);
            fields.put(field[0], field.length > 1 ? field[1] : "");
        }
        http = parts.length > 1 ? parts[1] : "";
        this.body = body;
    }

    /** Whether the message is a terminal, RESULT or FAILED. */
    public boolean isTerminal() {
        return verb.equals("RESULT") || verb.equals("FAILED");
    }

    /** Returns the body. Call it before {@link Bus#acknowledge}, which lets the broker delete the body. */
    public byte[] content() throws IOException, Connection.Failure {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        forEachPart(content::writeBytes);
        return content.toByteArray();
    }

    /** Receives the parts of a body. */
    interface Sink {
        void write(byte[] part) throws IOException, Connection.Failure;
    }

    /** Writes the parts of the body in order. Call it before {@link Bus#acknowledge}. */
    void forEachPart(Sink sink) throws IOException, Connection.Failure {
        String file = fields.get("file");
        if (fields.containsKey("pull") && connection instanceof Bus bus) {
            bus.pull(this, sink);
        } else {
            sink.write(file == null ? body : Files.readAllBytes(Path.of(file)));
        }
    }

    /** The bytes in the message. */
    byte[] inline() {
        return body;
    }

    /** The terminal as a line: handler, request, status or code, and URL. */
    @Override
    public String toString() {
        return String.join(" ", operands) + " " + fields.getOrDefault("url", "-");
    }
}
