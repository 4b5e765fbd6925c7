import java.util.Map;
import java.util.UUID;

/** Fetch URL: Writes the body of a URL to standard output. */
final class Fetch {
    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            Program.usage("Fetch URL");
        }
        String url = arguments[0];
        Program.main(bus -> {
            // All programs of the user share the handler names, so a random part keeps this one unique.
            bus.fetch("fetch/" + UUID.randomUUID(), "1", url, Map.of());
            Message message;
            do {
                message = bus.receive();
            } while (!message.isTerminal());
            if (message.verb.equals("RESULT")) {
                Program.write(message.content());
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
