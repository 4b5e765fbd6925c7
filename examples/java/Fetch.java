import java.util.Map;
import java.util.UUID;

/** Fetch URL: writes what is there to standard output. */
final class Fetch {
    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            Program.usage("Fetch URL");
        }
        String url = arguments[0];
        Program.main(bus -> {
            // Handlers are shared by all programs of the user: one's own has something in it that no other has.
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
