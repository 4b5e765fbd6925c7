import java.util.Map;

/** Gallery HANDLER URL...: Requests all URLs, and removes the handler after half of the results. */
final class Gallery {
    public static void main(String[] arguments) {
        if (arguments.length < 2) {
            Program.usage("Gallery HANDLER URL...");
        }
        String handler = arguments[0];
        int wanted = arguments.length - 1;
        Program.main(bus -> {
            for (int number = 1; number <= wanted; number++) {
                bus.fetch(handler, Integer.toString(number), arguments[number], Map.of());
            }
            int heard = 0;
            while (true) {
                Message message = bus.receive();
                if (message.isTerminal()) {
                    Program.print(message);
                    bus.acknowledge(message);
                    if (++heard == (wanted + 1) / 2) {
                        bus.remove(handler);
                    }
                } else if (message.verb.equals("REMOVED")) {
                    Program.print("dropped " + message.operands.get(1));
                    return;
                }
            }
        });
    }
}
