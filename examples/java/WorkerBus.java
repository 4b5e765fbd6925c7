import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Map;
import org.zeromq.ZMQ;

/** A connection as a worker, protocol EARW/1 (protocols/2-WORKER.md). One thread uses it, but for {@link #wake}. */
public final class WorkerBus extends Connection {
    private static final String WAKING = "inproc://wake";
    /** How long it takes to notice that the broker is gone, in ms. */
    private static final int LOOK_MS = 1000;

    private final ZMQ.Socket woken = context.socket(ZMQ.PAIR);
    private final ZMQ.Socket waker = context.socket(ZMQ.PAIR);
    private final ZMQ.Poller poller = new ZMQ.Poller(2);
    private boolean closed;

    /** Connects as a worker for URLs of a scheme, so many at once, in at most 3 s. */
    public WorkerBus(String scheme, int slots) throws Failure {
        // The socket is for one connection: what is meant for one broker shall not reach the next. Without a connection
        // nothing can be sent, and await notices that.
        socket.setReconnectIVL(-1);
        socket.setImmediate(true);
        socket.setSendTimeOut(GREETING_MS);
        woken.bind(WAKING);
        waker.connect(WAKING);
        poller.register(socket, ZMQ.Poller.POLLIN);
        poller.register(woken, ZMQ.Poller.POLLIN);
        String pid = Long.toString(ProcessHandle.current().pid());
        Map<String, String> offer =
                Map.of("slots", Integer.toString(slots), "schemes", scheme, "pid", pid, "drain", "yes");
        connect("work", offer, "READY", "EARW/1");
    }

    /** Waits for something to do, or a wake, at most so long and a second. Whether there is a message. */
    public boolean await(long milliseconds) throws Failure {
        poller.poll(Math.max(0, Math.min(milliseconds, LOOK_MS)));
        if (woken.recv(ZMQ.DONTWAIT) != null) {
            return false;
        }
        long events = socket.getEvents();
        if ((events & ZMQ.Poller.POLLIN) == 0 && (events & ZMQ.Poller.POLLOUT) == 0) {
            throw new Failure("the broker is gone", NO_BROKER);
        }
        return (events & ZMQ.Poller.POLLIN) != 0;
    }

    /** Ends a wait. The one thing that another thread may do. */
    public synchronized void wake() {
        if (!closed) {
            waker.send(new byte[0], 0);
        }
    }

    /** Answers a JOB with a body and its type. */
    public void done(String attempt, String type, byte[] body) throws Failure {
        String head = new String(head(Map.of("length", Integer.toString(body.length)), "DONE", attempt, "200"), UTF_8);
        socket.send((head + "\ncontent-type: " + type + "\n").getBytes(UTF_8), ZMQ.SNDMORE);
        socket.send(body, 0);
    }

    /** Answers a JOB that came to nothing; {@code detail} is a line for who asked, if the code is worker-failed. */
    public void failed(String attempt, String code, String detail) throws Failure {
        say(Map.of("detail", detail), "FAILED", attempt, code);
    }

    /** Answers PING. */
    public void pong() throws Failure {
        say(Map.of(), "PONG");
    }

    /** Leaves. */
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
