internal import EarshotLoop
internal import Glibc

/// The end of a program's output that is read, without waiting.
struct ProgramPipe: ~Copyable {
    /// What one look brought.
    enum Piece: Equatable {
        /// So many bytes are in the buffer.
        case bytes(Int)
        case nothingYet
        case end
    }

    let descriptor: Int32
    private let registration: EventLoop.Registration
    private let loop: EventLoop

    /// - Parameters:
    ///   - descriptor: owned from now on.
    ///   - readable: called in each pass in which there is something to read.
    init(_ descriptor: Int32, _ loop: EventLoop, readable: @escaping () -> Void) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        do throws(SystemError) {
            registration = try loop.add(descriptor, .readable) { _ in readable() }
        } catch {
            close(descriptor)
            throw error
        }
    }

    deinit {
        loop.remove(registration)
        close(descriptor)
    }

    func read(into buffer: inout [UInt8]) -> Piece {
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count > 0 { return .bytes(count) }
            if count == 0 { return .end }
            switch errno {
            case EINTR: continue
            case EAGAIN: return .nothingYet
            default: return .end
            }
        }
    }
}
