import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import org.zeromq.ZMQ;

/** Connection of a worker, protocol EARW/1 (protocols/2-WORKER.md). Only {@link #wake} may be called from any thread. */
public final class WorkerBus extends Connection {
    private static final String WAKING = "inproc://wake";
    /** Interval between two checks that the broker is alive, in milliseconds. */
    private static final int LOOK_MS = 1000;

    private final ZMQ.Socket woken = context.socket(ZMQ.PAIR);
    private final ZMQ.Socket waker = context.socket(ZMQ.PAIR);
    private final ZMQ.Poller poller = new ZMQ.Poller(2);
    private boolean closed;

    /** Connects as a worker for URLs of a scheme, with {@code slots} concurrent jobs, within 3 s. */
    public WorkerBus(String scheme, int slots) throws Failure {
        serveOneConnection(); // await detects its end.
        woken.bind(WAKING);
        waker.connect(WAKING);
        poller.register(socket, ZMQ.Poller.POLLIN);
        poller.register(woken, ZMQ.Poller.POLLIN);
        String pid = Long.toString(ProcessHandle.current().pid());
        Map<String, String> offer =
                Map.of("slots", Integer.toString(slots), "schemes", scheme, "pid", pid, "drain", "yes");
        connect("work", offer, "READY", "EARW/1");
    }

    /** Waits for a message or a wake, at most {@code milliseconds} and at most 1 s. Returns whether a message is there. */
    public boolean await(long milliseconds) throws Failure {
        poller.poll(Math.max(0, Math.min(milliseconds, LOOK_MS)));
        if (woken.recv(ZMQ.DONTWAIT) != null) {
            return false;
        }
        if (!isConnected()) {
            throw new Failure("the broker is gone", NO_BROKER);
        }
        return (socket.getEvents() & ZMQ.Poller.POLLIN) != 0;
    }

    /** Ends a wait. Any thread may call it. */
    public synchronized void wake() {
        if (!closed) {
            waker.send(new byte[0], 0);
        }
    }

    /** Completes a JOB with a body and its content type. */
    public void done(String attempt, String type, byte[] body) throws Failure {
        String head = new String(head(Map.of("length", Integer.toString(body.length)), "DONE", attempt, "200"), UTF_8);
        socket.send((head + "\ncontent-type: " + type + "\n").getBytes(UTF_8), ZMQ.SNDMORE);
        socket.send(body, 0);
    }

    /** Fails a JOB. With the code worker-failed, clients receive {@code detail}, which is one line. */
    public void failed(String attempt, String code, String detail) throws Failure {
        say(Map.of("detail", detail), "FAILED", attempt, code);
    }

    /** Answers a PING of the broker. */
    public void pong() throws Failure {
        say(Map.of(), "PONG");
    }

    /** Ends the worker's session. */
    public void bye() throws Failure {
        say(Map.of(), "BYE");
    }

    @Override
    public void close() {
        synchronized (this) {
            closed = true;
            waker.close();
        }
        woken.close();
        super.close();
    }
}
