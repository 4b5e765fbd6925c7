import java.util.Map;
import java.util.UUID;

/**
 * Fetch [--pull] URL: Writes the body of a URL to standard output. With --pull it comes over the connection, and a broken
 * connection is resumed.
 */
final class Fetch {
    public static void main(String[] arguments) {
        boolean pull = arguments.length > 1 && arguments[0].equals("--pull");
        if (arguments.length != (pull ? 2 : 1)) {
            Program.usage("Fetch [--pull] URL");
        }
        String url = arguments[pull ? 1 : 0];
        Program.main(() -> pull ? new Bus(true, 60) : new Bus(), bus -> {
            // All programs of the user share the handler names, so a random part keeps this one unique.
            bus.fetch("fetch/" + UUID.randomUUID(), "1", url, Map.of());
            Message message;
            do {
                message = bus.receive();
            } while (!message.isTerminal());
            if (message.verb.equals("RESULT")) {
                message.forEachPart(Program::write);
                bus.acknowledge(message);
            } else {
                bus.acknowledge(message);
                String status = message.fields.containsKey("status") ? " " + message.fields.get("status") : "";
                String reason = message.operands.get(2) + status;
                throw new Bus.Failure(url + ": " + message.fields.get("detail") + " (" + reason + ")", Bus.FAILED);
            }
        });
    }
}
