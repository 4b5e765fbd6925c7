import static java.nio.file.LinkOption.NOFOLLOW_LINKS;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** The runtime directory of the bus, and the rule by which it is trusted. */
final class Place {
    /** Runtime directory of a bus for several users of the machine. */
    private static final Path SHARED = Path.of("/run/earshot");
    private static final int STICKY = 01000;

    private Place() {
    }

    /** Returns the runtime directory of the bus. */
    static Path folder() {
        String named = System.getenv("EARSHOT_RUNTIME");
        if (named != null && !named.isEmpty()) {
            return Path.of(named);
        }
        String session = System.getenv("XDG_RUNTIME_DIR");
        if (session != null && !session.isEmpty()) {
            return Path.of(session, "earshot");
        }
        Path own = Path.of("/tmp", "earshot-" + user());
        try {
            return !isServed(own) && isTrusted(SHARED) ? SHARED : own;
        } catch (IOException missing) {
            return own;
        }
    }

    /**
     * Returns whether the listener in a directory is trusted: of a directory of this user, or of one whose owner root
     * decided. In /tmp any user can create a directory, and would receive the requests.
     */
    static boolean isTrusted(Path folder) throws IOException {
        Map<String, Object> found = attributes(folder);
        int mode = (int) found.get("mode") & 07777;
        int owner = (int) found.get("uid");
        if (!(boolean) found.get("isDirectory")) {
            return false;
        }
        if (owner == user()) {
            return (mode & 077) == 0 || mode == 0755;
        }
        return (mode & 022) == 0 && onlyRootDecides(folder, owner == 0);
    }

    /** Returns whether only root, or this user, can create and replace the directory. A path with links is not accepted. */
    private static boolean onlyRootDecides(Path folder, boolean permitsSticky) throws IOException {
        if (!folder.isAbsolute()) {
            return false;
        }
        for (Path above = folder.getParent(); above != null; above = above.getParent()) {
            Map<String, Object> found = attributes(above);
            int mode = (int) found.get("mode");
            int owner = (int) found.get("uid");
            boolean isSafe = (mode & 022) == 0 || (permitsSticky && (mode & STICKY) != 0);
            if (!(boolean) found.get("isDirectory") || !isSafe || (owner != 0 && owner != user())) {
                return false;
            }
        }
        return true;
    }

    private static boolean isServed(Path folder) {
        try (SocketChannel probe = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            return probe.connect(UnixDomainSocketAddress.of(folder.resolve("bus")));
        } catch (IOException error) {
            return false;
        }
    }

    private static Map<String, Object> attributes(Path path) throws IOException {
        return Files.readAttributes(path, "unix:isDirectory,uid,mode", NOFOLLOW_LINKS);
    }

    private static int user() {
        try {
            return (int) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
