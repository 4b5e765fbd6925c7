import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Adapter FOLDER: Executes the commands on standard input, for the tests common to all languages (protocols/README.md).
 * Writes bodies to files in FOLDER.
 */
final class Adapter {
    public static void main(String[] arguments) throws IOException {
        if (arguments.length != 1) {
            Program.usage("Adapter FOLDER");
        }
        try (Bus bus = new Bus()) {
            System.out.println("ready");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String command = input.readLine(); command != null; command = input.readLine()) {
                carryOut(bus, List.of(command.split(" ")), Path.of(arguments[0]));
            }
        } catch (Bus.Failure failure) {
            System.out.println(failure.status == Bus.NO_BROKER ? "gone" : "error " + failure.getMessage());
        }
    }

    private static void carryOut(Bus bus, List<String> words, Path folder) throws Bus.Failure, IOException {
        switch (words.get(0)) {
            case "fetch" -> {
                Map<String, String> fields = new HashMap<>();
                for (String field : words.subList(4, words.size())) {
                    String[] parts = field.split("=", 2);
                    fields.put(parts[0], parts[1]);
                }
                bus.fetch(words.get(1), words.get(2), words.get(3), fields);
            }
            case "cancel" -> bus.cancel(words.get(1), words.get(2));
            case "remove" -> bus.remove(words.get(1));
            case "subscribe" -> bus.subscribe(words.get(1));
            default -> { // receive
                String told = null;
                while (told == null) {
                    told = line(bus, bus.receive(), folder);
                }
                System.out.println(told);
            }
        }
    }

    /** Returns the line for a message, or null for a message without one. */
    private static String line(Bus bus, Message message, Path folder) throws Bus.Failure, IOException {
        String words = String.join(" ", message.operands);
        switch (message.verb) {
            case "RESULT", "FAILED" -> {
                Path path = Files.write(folder.resolve(message.fields.get("seq")), message.content());
                bus.acknowledge(message);
                String status = message.fields.getOrDefault("status", "-");
                return message.verb.equals("RESULT") ? "result " + words + " " + path
                        : "failed " + words + " " + status + " " + path;
            }
            case "PROGRESS", "REMOVED", "CANCELLED" -> {
                return message.verb.toLowerCase(Locale.ROOT) + " " + words;
            }
            default -> {
                return message.verb.equals("ANSWER") ? "listening" : null;
            }
        }
    }
}
