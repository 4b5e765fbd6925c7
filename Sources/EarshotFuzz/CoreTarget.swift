internal import EarshotQueries
internal import EarshotWire

@testable internal import EarshotCore

/// Fuzz target: a core with two clients and two workers that send arbitrary messages, after the death of an earlier
/// broker. The first two workers have the numbers 3 and 4.
///
/// The input consists of records that end with 0xff. The first byte selects the event:
///
/// - `0`, `1`: a client sends the rest of the record, under the next number if that has none. The shell can rename files
///   with an even number of a TAKE.
/// - `n`, `o`: the same without that number. In a session with a lease such a message is refused, and so is one with an old
///   number: it changes nothing, and the ERROR names no message.
/// - `2`, `3`: a worker sends the rest of the record.
/// - `4`: time advances by the next byte times 100 ms.
/// - `5`, `6`: a client disconnects. A new one connects and sends the rest of the record, or HELLO if it is empty.
/// - `7`, `8`: a worker disconnects and a new one connects.
/// - `9`: the sockets refuse the next terminals and DATA. Otherwise files lack pieces of an even length.
/// - `w`: the sockets are writable again.
/// - `d`: the broker drains.
struct CoreTarget {
    /// Maximum number of records per input, so that inputs stay fast.
    private static let records = 400

    private var core: BrokerCore
    private var now = MonotonicTime(nanoseconds: 0)
    private var clients: [ClientID] = []
    private var workers: [WorkerID] = []
    private var lastPeer: UInt64 = 0
    private var lastBody: UInt64 = 0
    private var refusesDeliveries = false

    static func run(_ bytes: [UInt8]) {
        var target = CoreTarget()
        for record in bytes.split(separator: 0xff, maxSplits: Self.records, omittingEmptySubsequences: true)
            .prefix(Self.records)
        {
            target.executeRecord(record)
        }
        let faults = target.core.audit()
        precondition(faults.isEmpty, "\(faults)")
    }

    private init() {
        var limits = CoreLimits()
        limits.maximumOpenRequests = 64
        limits.maximumOpenRequestsPerClient = 32
        limits.maximumSubscriptionsPerClient = 16
        limits.maximumDueTerminalsPerClient = 32
        limits.originRules.defaultMaximumTransfers = 2
        limits.maximumRequestRemovalsPerPass = 1
        limits.maximumSessionCleanupsPerPass = 1
        limits.maximumWithdrawalChecksPerPass = 1
        let workerLimits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: "/spool")
        core = BrokerCore(
            workerLimits: workerLimits, secret: nil, limits: limits, answering: Queries.answer, seed: 1)
        core.recoverFromBrokerDeath(awaiting: [3, 4], until: now.advanced(byMilliseconds: 1_000), now: now)
        clients = [connectClient(window: 3), connectClient(window: 256)]
        workers = [connectWorker(), connectWorker()]
        runPass()
    }

    // MARK: Records

    private mutating func executeRecord(_ record: ArraySlice<UInt8>) {
        guard let kind = record.first else { return }
        let rest = Array(record.dropFirst())
        switch kind {
        case UInt8(ascii: "0"), UInt8(ascii: "1"): receiveFromClient(rest, clients[Int(kind & 1)])
        case UInt8(ascii: "n"), UInt8(ascii: "o"): receiveFromClient(rest, clients[Int(kind & 1)], isNumbering: false)
        case UInt8(ascii: "2"), UInt8(ascii: "3"): receiveFromWorker(rest, workers[Int(kind & 1)])
        case UInt8(ascii: "4"): now = now.advanced(byMilliseconds: Int(rest.first ?? 1) * 100)
        case UInt8(ascii: "5"), UInt8(ascii: "6"):
            let index = Int(kind - UInt8(ascii: "5"))
            while core.hasPendingRemoval(by: clients[index]) { runPass() }
            core.clientLost(clients[index], now: now)
            clients[index] = connectClient(window: index == 0 ? 3 : 256, sending: rest)
        case UInt8(ascii: "7"), UInt8(ascii: "8"):
            let index = Int(kind - UInt8(ascii: "7"))
            core.workerDisconnected(workers[index], isProcessAlive: rest.isEmpty, now: now)
            core.workerLost(workers[index], now: now)
            workers[index] = connectWorker()
        case UInt8(ascii: "9"): refusesDeliveries = true
        case UInt8(ascii: "w"):
            refusesDeliveries = false
            for client in clients { core.clientSocketWritable(client) }
        case UInt8(ascii: "d"): core.beginDraining()
        default: return
        }
        runPass()
    }

    private mutating func receiveFromClient(_ head: [UInt8], _ client: ClientID, isNumbering: Bool = true) {
        while core.hasPendingRemoval(by: client) { runPass() }
        do throws(WireError) {
            let numbered = try NumberedMessage(head: head)
            let message = numbered.message
            if case .takeFile(let sequence) = message, sequence.isMultiple(of: 2),
                let file = core.beginFileTake(sequence, by: client)
            {
                core.fileTaken(file)
            }
            let session = core.records.clients.handle(of: client).map { core.records.clients[$0] }
            let last = session?.messageNumbers.lastNumber ?? 0
            let number = numbered.number ?? (isNumbering && message.canHaveNumber ? last &+ 1 : nil)
            core.clientMessageReceived(message, number: number, from: client, now: now)
            guard let session, session.phase == .open, message.canHaveNumber else { return }
            let isWrong = number.map { $0 <= last } ?? (session.leaseMilliseconds > 0)
            if isWrong { checkRefusal(to: client, lastNumber: last) }
        } catch {
            core.malformedClientMessageReceived(error, from: client, now: now)
        }
    }

    /// Checks that the last message was refused without a number, and had no other effect.
    ///
    /// - Parameter last: number of the last message before it.
    private mutating func checkRefusal(to client: ClientID, lastNumber last: UInt64) {
        guard let session = core.records.clients.handle(of: client) else { preconditionFailure("the session ended") }
        precondition(core.records.clients[session].messageNumbers.lastNumber == last, "a refused number counts")
        // Before a resumed session has room for its terminals, answers wait.
        guard !core.records.clients[session].replies.hasWaitingReply else { return }
        let actions = core.takeActions()
        guard actions.count == 1, case .client(.send(client, .error(let reply)))? = actions.first else {
            preconditionFailure("\(actions) for a message with a wrong number")
        }
        precondition(reply.code == "bad-message", "\(reply) for a message with a wrong number")
    }

    private mutating func receiveFromWorker(_ head: [UInt8], _ worker: WorkerID) {
        do throws(WireError) {
            var message = try WorkerMessage(head: head)
            lastBody += 1
            var body: BodyID? = BodyID(rawValue: lastBody)
            // The shell gives a file the name of its content, and reports one form of a body.
            if case .completed(var completion) = message, completion.fileName != nil {
                completion.fileName = completion.sha256
                message = .completed(completion)
                if completion.fileName != nil { body = nil }
            }
            core.workerMessageReceived(message, body: body, from: worker, now: now)
        } catch {
            core.malformedWorkerMessageReceived(error, from: worker, now: now)
        }
    }

    // MARK: The pass

    private mutating func runPass() {
        core.timePassed(now: now)
        core.dispatch(now: now)
        while true {
            let actions = core.takeActions()
            if actions.isEmpty { return }
            var refused: Set<ClientID> = []
            if refusesDeliveries {
                for case .client(.send(let client, .progress(let progress))) in actions {
                    core.socketRefusedProgress(progress.handler, progress.request, by: client)
                }
            }
            for action in actions {
                let client: ClientID
                let sequence: UInt64
                switch action {
                case .client(.deliverTerminal(let reader, let terminal, _)):
                    (client, sequence) = (reader, terminal.sequence)
                case .client(.sendBodyPiece(let reader, let piece)):
                    precondition(
                        (1...WireLimits.dataBytes).contains(piece.maximumBytes)
                            && piece.dataHead.offset <= .max - piece.maximumBytes)
                    if refusesDeliveries {
                        core.socketRefusedPiece(piece, by: reader)
                    } else if piece.maximumBytes.isMultiple(of: 2) {
                        core.bodyPieceUnreadable(piece, by: reader, now: now)
                    }
                    continue
                default: continue
                }
                guard !refused.contains(client) else { continue }
                guard refusesDeliveries else { continue }
                refused.insert(client)
                core.socketRefusedTerminal(sequence, by: client)
            }
        }
    }

    private mutating func connectClient(window: Int, sending first: [UInt8] = []) -> ClientID {
        lastPeer += 1
        let client = ClientID(rawValue: lastPeer)
        // Tokens that an input can contain.
        core.clientConnected(client, token: SessionToken(highBits: 0, lowBits: lastPeer))
        guard first.isEmpty else {
            receiveFromClient(first, client)
            return client
        }
        var hello = Hello(window: window)
        hello.leaseMilliseconds = 1_000
        core.clientMessageReceived(.hello(hello), from: client, now: now)
        return client
    }

    private mutating func connectWorker() -> WorkerID {
        lastPeer += 1
        let worker = WorkerID(rawValue: lastPeer)
        core.workerConnected(worker, process: Int32(truncatingIfNeeded: lastPeer), now: now)
        core.workerMessageReceived(.ready(Ready(slots: 3)), body: nil, from: worker, now: now)
        return worker
    }
}
