/// Bounds and times of the core, each with the reason for its default.
public struct CoreLimits: Equatable, Sendable {
    /// Requests that are not ended, of all clients: a million are designed for, twice that is a runaway.
    public var requests = 2_000_000
    /// Requests that are not ended, of one client: as many as one program may sensibly plan.
    public var requestsPerClient = 1_000_000
    /// Handlers one client may be subscribed to: ten times the live handlers designed for.
    public var subscriptionsPerClient = 100_000
    /// Requests of one handler that are not ended: what one view, list or crawl may plan.
    public var requestsPerHandler = 1_000_000
    /// Transfers at once to one origin, and the time between their starts.
    public var origins = OriginRules()
    /// Bytes of inline bodies that may wait for one handler's first listener, if all were of one size: what waits
    /// beyond is moved into the spool. The same for one client, where its terminals cannot be moved whole.
    public var waitingBytes = 1 << 20
    /// Bytes of memory that may be taken by terminals which wait for one client's window, bodies and all: the others
    /// wait in the spool. A quarter of the mebibyte that a client which reads nothing may cost: the rest is for what
    /// memory keeps of each of the others, 64 bytes of 12,000.
    public var waitingTerminalBytes = 256 << 10
    /// Bytes from which on a body is a file if it is to be given away, and not sent in a message: to make a file and
    /// rename it costs as much as to write and read so many bytes twice.
    public var takenBytes = 32 << 10
    /// Bytes of one request's body: a form, a call of an interface. What is larger is not for a queue in memory.
    public var requestBodyBytes = 1 << 20
    /// Bytes of the bodies of one client's requests that have not ended, and of all clients'.
    public var requestBodyBytesPerClient = 32 << 20
    /// See `requestBodyBytesPerClient`.
    public var requestBodyBytesOfAll = 256 << 20
    /// Bytes of the long heads of one client's requests that have not ended, and of all clients': URL and header
    /// fields beyond `RequestHeads.freeBytes` for each. As many as of bodies.
    public var requestHeadBytesPerClient = 32 << 20
    /// See `requestHeadBytesPerClient`.
    public var requestHeadBytesOfAll = 256 << 20
    /// Bytes at which a page of a table is full: some hundred entries, a fraction of a millisecond's work.
    public var answerBytes = 32 << 10
    /// Jars of cookies, one for each root that uses some: each has up to 16 MiB, and few programs use any. Beyond it the
    /// jar that has been without handlers for longest is evicted.
    public var cookieJars = 100
    /// How long a jar is kept without handlers: time for the next command of a script, or for a person to type it.
    public var cookieMilliseconds = 600_000
    /// Clients whose connection is gone and that are kept for their lease: of more, who has been away longest is
    /// purged. Each can be owed as much as one that is connected.
    public var awayClients = 256
    /// Replies kept of a session with a lease, for a connection that resumes it: more questions than a
    /// program has open at once. Each has two names and a sentence, less than 1 KiB.
    public var keptReplies = 256
    /// How long a connection may take to say HELLO; a program says it at once.
    public var greetingMilliseconds = 10_000
    /// How long a terminal waits for somebody to listen, and a handler's own requests for a new listener.
    public var graceMilliseconds = 10_000
    /// How long a durable request is kept from its acceptance on: who asked for it comes back after a holiday, or
    /// never.
    public var durableMilliseconds = 7 * 86_400_000
    /// Bytes of bodies of durable results on their way to the disk; of more, some are not kept. A slow disk costs no
    /// more.
    public var recordingBytes = 256 << 20
    /// Results that are read from the disk at once, for those who came to claim them.
    public var durableReads = 64
    /// How long a file is kept for a client that does not acknowledge: time to open it.
    public var lentFileMilliseconds = 60_000
    /// How long a spool that could not take a body is not tried again: disks are not emptied faster.
    public var spoolRetryMilliseconds = 1_000
    /// Silence of a worker with work after which it is asked for a sign of life.
    public var heartbeatMilliseconds = 5_000
    /// Silence after that question after which it is killed: long enough for a machine that swaps.
    public var silenceMilliseconds = 10_000
    /// Messages of a client for which the cancellation of a flight that it left is deferred: more than the rows that a
    /// list moves in one step.
    public var handOverMessages = 512
    /// Deaths of a flight's workers after which the flight is a suspect and runs alone. One has no consequence, so that a
    /// killed worker delays nothing.
    public var deathsOfSuspect = 2
    /// Deaths of workers that ran a flight until it is poisonous in any case: a bound for a flight that kills late.
    public var workerDeathsPerFlight = 10
    /// Time for which a suspect runs alone; doubled for each further death. Most crashes come with the first bytes, and
    /// 64 suspects need 6.4 s at most.
    public var isolationMilliseconds = 100
    /// Time for which a suspect waits for an empty worker before it runs with other flights: the most for which a bus
    /// with one worker starts no other work.
    public var suspicionMilliseconds = 10_000

    func isolation(deaths: UInt8) -> Int { isolationMilliseconds << max(0, Int(deaths) - deathsOfSuspect) }

    /// Bytes of bodies in the spool: whole ones that somebody may read, parts, and what grows as far as told. Some
    /// films.
    public var spoolBytes = 10 << 30
    /// Bodies that broke off and wait for their flights' next attempts: what may fail at once.
    public var keptParts = 1_000
    /// The same of flights that nobody wants any more, their bytes, and how long they are kept: who comes back to a
    /// page or a list comes back soon.
    public var partsAside = 16
    public var partsAsideBytes = 1 << 30
    public var asideMilliseconds = 300_000
    /// How long from its start a broker takes over what workers fetch for an earlier one: clients ask again as soon as
    /// they are connected, and a program that is busy takes some seconds.
    public var adoptionMilliseconds = 10_000
    /// Bytes of answers to an earlier broker's requests that wait in memory until somebody asks: what small files a few
    /// seconds bring.
    public var orphanBytes = 64 << 20
    /// Flights that are looked up by the time a worker tells what it holds: who asks for more at once has some fetched
    /// twice.
    public var adopters = 100_000
    /// The longest pause between two PROGRESS messages of a worker; costs nothing to short transfers.
    public var progressMilliseconds = 250
    /// The same for a body that somebody reads while it arrives.
    public var streamMilliseconds = 50
    /// Requests of one client whose progress is told later because its socket was full; of more, the next is waited
    /// for.
    public var missedProgress = 1_000
    /// The longest a server may ask to be left alone; requests to one that asks for more fail at once.
    public var coolDownMilliseconds = 600_000
    /// Requests to such a server that are failed in one pass: a few milliseconds' worth.
    public var refusalsPerPass = 1_000
    /// Requests of removed handlers that are purged in one pass: half a millisecond's worth where nothing is in the
    /// caches.
    public var purgesPerPass = 200
    /// The same for requests, subscriptions and terminals of clients that are gone.
    public var departuresPerPass = 200
    /// Timers that are dealt with in one pass: half a millisecond's worth of deadlines.
    public var timersPerPass = 200
    /// Origins that are remembered for their wish to be left alone though nobody wants anything of them: each is a few
    /// hundred bytes, and a server chooses for how long.
    public var restingScopes = 10_000
    /// Stale answers that wait to be brought up to date; of more, the next request that uses one sees to it.
    public var revalidations = 1_000
    /// Of them, how many are looked at in one pass: their origins may be busy.
    public var revalidationsPerPass = 16
    /// Time for a connection to an origin.
    public var connectMilliseconds = 10_000
    /// Kinds of URLs that workers fetch: http with https, and each scheme that users' own workers have registered, or
    /// had within `poolAbsenceMilliseconds`.
    public var pools = 64
    /// How long requests wait for a worker of a scheme after its last one has gone: one that crashed is started again.
    public var poolAbsenceMilliseconds = 10_000
    /// Hops of one chain of redirects; the Fetch standard allows 20, common clients 5 to 10.
    public var redirectHops = 10
    /// Terminals that may be due to one client; one that owes more acknowledgements has stopped reading, and is closed.
    public var dueDeliveries = 1_000_000
    /// Bytes of header fields in those of them that are in memory, at which it is closed as well: bodies wait in the
    /// spool.
    public var dueBytes = 256 << 20
    /// Bytes of bodies in them, and of what waits in the spool with them, that may be due to a client that acknowledges
    /// nothing for `stallMilliseconds`: a tenth of the spool, which is for all.
    public var stalledBytes = 1 << 30
    /// See `stalledBytes`: a person who looks at a stopped program, or a disk that is slow, is given ten minutes.
    public var stallMilliseconds = 600_000

    public init() {}
}
