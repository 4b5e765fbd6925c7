import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Locale;

/** Worker [MILLISECONDS]: Answers URLs such as upper:hello, with HELLO. Each job takes MILLISECONDS. */
final class Worker {
    private static final int SLOTS = 4;

    private record Job(String attempt, String text, long due) {}

    private final WorkerBus bus;
    private final long delay;
    /** Running jobs. All take the same time, so the first one is due first. */
    private final Deque<Job> jobs = new ArrayDeque<>();
    private volatile boolean leaving;

    private Worker(WorkerBus bus, long delay) {
        this.bus = bus;
        this.delay = delay;
    }

    public static void main(String[] arguments) {
        boolean delayed = arguments.length == 1 && arguments[0].matches("[0-9]{1,7}");
        if (arguments.length > 0 && !delayed) {
            Program.usage("Worker [MILLISECONDS]");
        }
        long delay = delayed ? Long.parseLong(arguments[0]) : 0;
        Program.main(() -> new WorkerBus("upper", SLOTS), bus -> new Worker(bus, delay).serve());
    }

    private void serve() throws Bus.Failure {
        Thread serving = Thread.currentThread();
        // Runs on SIGTERM. Without halt, Java would exit with 143 afterwards.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            leaving = true;
            bus.wake();
            try {
                serving.join();
            } catch (InterruptedException interrupted) {
                return;
            }
            Runtime.getRuntime().halt(0);
        }));
        System.err.println("earshot: serving upper:");
        while (!leaving || !jobs.isEmpty()) {
            if (bus.await(jobs.isEmpty() ? Long.MAX_VALUE : jobs.peek().due - now())) {
                hear(bus.receive());
            }
            while (!jobs.isEmpty() && jobs.peek().due <= now()) {
                Job job = jobs.remove();
                bus.done(job.attempt, "text/plain", job.text.getBytes(UTF_8));
            }
        }
        bus.bye();
    }

    private void hear(Message message) throws Bus.Failure {
        switch (message.verb) {
            case "JOB" -> begin(message.operands.get(0), message.operands.get(1));
            case "CANCEL" -> cancel(message.operands.get(0));
            case "PING" -> bus.pong();
            case "DRAIN" -> leaving = true;
            default -> { }
        }
    }

    private void begin(String attempt, String url) throws Bus.Failure {
        String text = url.substring(url.indexOf(':') + 1);
        if (leaving || jobs.size() == SLOTS) {
            bus.failed(attempt, "worker-lost", "no room");
        } else if (text.isEmpty()) {
            bus.failed(attempt, "worker-failed", "no text follows upper:");
        } else {
            jobs.add(new Job(attempt, text.toUpperCase(Locale.ROOT), now() + delay));
        }
    }

    /** Cancels a running job. Ignores a job that has ended. */
    private void cancel(String attempt) throws Bus.Failure {
        if (jobs.removeIf(job -> job.attempt.equals(attempt))) {
            bus.failed(attempt, "cancelled", "the broker cancelled the job");
        }
    }

    private static long now() {
        return System.nanoTime() / 1_000_000;
    }
}
