import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// The table of flights in isolation: each phase after each phase, keys and names, requests, redirects and deferred
/// cancellation.
struct FlightTableTests {
    private static let now = MonotonicTime(nanoseconds: 1_000_000_000)
    private var table = FlightTable()

    enum Phase: CaseIterable {
        case lookingUp, queued, claiming, running, backingOff, following, ended

        init(_ phase: Flight.Phase) {
            self =
                switch phase {
                case .lookingUp: .lookingUp
                case .queued: .queued
                case .claiming: .claiming
                case .running: .running
                case .backingOff: .backingOff
                case .following: .following
                case .ended: .ended
                }
        }
    }

    /// Phases that may come after a phase.
    private static func next(after phase: Phase) -> Set<Phase> {
        switch phase {
        case .lookingUp: [.lookingUp, .queued, .running, .following, .ended]
        case .queued: [.lookingUp, .queued, .claiming, .running, .following, .ended]
        case .claiming: [.queued, .running, .backingOff, .following, .ended]
        case .running: [.lookingUp, .queued, .running, .backingOff, .following, .ended]
        case .backingOff: [.queued, .running, .ended]
        case .following: [.ended]
        case .ended: [.lookingUp, .queued, .running, .following, .ended]
        }
    }

    private static func key(_ url: String, mode: CacheMode = .default, alone: UInt64? = nil) throws -> (
        HTTPRequest, FlightKey
    ) {
        let request = HTTPRequest(
            method: .get, url: try FetchURL(url, hostEncoder: nil), fields: HeaderFields(), route: Route())
        return (request, FlightKey(request, redirect: .follow, partition: nil, alone: alone, mode: mode))
    }

    private static func begin(
        _ table: inout FlightTable, _ url: String = "http://o/", mode: CacheMode = .default,
        servesSingleRequest: Bool = false
    ) throws -> Handle<Flight> {
        let (request, key) = try key(url, mode: mode, alone: servesSingleRequest ? table.nextID : nil)
        return table.begin(
            request, redirect: .follow, partition: nil, key, scope: 3, servesSingleRequest: servesSingleRequest,
            body: nil)
    }

    /// Enters a phase. A deferred cancellation allows the flight to be `ended`, and the flight of another URL allows it
    /// to follow.
    private static func enter(
        _ phase: Phase, _ flight: Handle<Flight>, _ child: Handle<Flight>, _ table: inout FlightTable
    ) {
        switch phase {
        case .lookingUp: table.enterPhase(.lookingUp, flight)
        case .queued: table.enterPhase(.queued, flight)
        case .claiming: table.enterPhase(.claiming, flight)
        case .running: table.enterPhase(.running(worker: 1), flight)
        case .backingOff: table.backOff(flight, until: now)
        case .following: table.followRedirect(child, by: flight)
        case .ended:
            table.deferCancellation(of: flight, by: nil)
            #expect(table.retainOutcomeIfDeferred(5, of: flight) == true)
        }
    }

    private static func phase(_ phase: Phase) -> Flight.Phase {
        switch phase {
        case .lookingUp: .lookingUp
        case .queued: .queued
        case .claiming: .claiming
        case .running: .running(worker: 1)
        case .backingOff: .backingOff
        case .following: .following(child: 1)
        case .ended: .ended
        }
    }

    @Test(arguments: Phase.allCases, Phase.allCases)
    func `other transitions than those of the diagram are illegal`(phase: Phase, next: Phase) {
        let isLegal = Flight.isLegal(from: Self.phase(phase), to: Self.phase(next))
        #expect(isLegal == Self.next(after: phase).contains(next))
    }

    @Test(arguments: Phase.allCases, Phase.allCases)
    func `each phase follows where the diagram says`(phase: Phase, next: Phase) throws {
        guard Self.next(after: phase).contains(next) else { return }
        var table = FlightTable()
        let flight = try Self.begin(&table)
        let child = try Self.begin(&table, "http://o/child")
        if phase == .backingOff { Self.enter(.running, flight, child, &table) }
        if phase != .queued { Self.enter(phase, flight, child, &table) }
        #expect(Phase(table[flight].phase) == phase)
        #expect(table.checkInvariants() == [])
        if phase == .following { table.stopFollowing(child, by: flight) }
        if phase == .ended { _ = table.endDeferral(of: flight) }
        Self.enter(next, flight, child, &table)
        #expect(Phase(table[flight].phase) == next)
        #expect((table.backOffEnds[flight] == Self.now) == (next == .backingOff))
        #expect(table.phaseCounts[table[flight].phase] == (next == .queued ? 2 : 1))
        #expect(table.checkInvariants() == [])
        // In any phase it can be freed.
        if next == .following { table.stopFollowing(child, by: flight) }
        _ = table.endDeferral(of: flight)
        table.remove(flight)
        table.remove(child)
        #expect(table.count == 0 && table.phaseCounts == FlightCounts() && table.backOffEnds.isEmpty)
        #expect(table.checkInvariants() == [])
    }

    // MARK: Keys and names

    @Test mutating func `a name finds its flight only until it ends, even if the number is used again`() throws {
        let flight = try Self.begin(&table)
        let name = table.name(of: flight)
        #expect(table.handle(of: name) == flight)
        table.remove(flight)
        #expect(table.handle(of: name) == nil)
        let other = try Self.begin(&table)
        #expect(other == flight && table.handle(of: name) == nil)
        #expect(table.handle(of: table.name(of: other)) == other)
    }

    @Test mutating func `a key finds its flight until it ends`() throws {
        let flight = try Self.begin(&table)
        let (_, key) = try Self.key("http://o/")
        let (_, other) = try Self.key("http://o/2")
        #expect(table.handle(of: key) == flight && table.joinableFlight(key) == flight)
        #expect(table.handle(of: other) == nil && table.joinableFlight(other) == nil)
        table.remove(flight)
        #expect(table.handle(of: key) == nil && table.joinableFlight(key) == nil)
    }

    @Test mutating func `a request joins a flight of a stricter mode, but for a background revalidation`() throws {
        let flight = try Self.begin(&table, mode: .reload)
        #expect(table.nonDefaultCacheModeCount == 1)
        let (_, key) = try Self.key("http://o/")
        #expect(key.cacheMode.satisfyingModes.contains(.reload))
        #expect(table.joinableFlight(key) == flight && table.handle(of: key) == nil)
        table[flight].isRevalidation = true
        #expect(table.joinableFlight(key) == nil)
        #expect(table.checkInvariants() == [])
        table.remove(flight)
        #expect(table.nonDefaultCacheModeCount == 0)
    }

    @Test(arguments: Phase.allCases)
    func `an explicit request takes over a flight that an origin will answer`(phase: Phase) throws {
        var table = FlightTable()
        let flight = try Self.begin(&table)
        let child = try Self.begin(&table, "http://o/child")
        if phase == .backingOff { Self.enter(.running, flight, child, &table) }
        if phase != .queued { Self.enter(phase, flight, child, &table) }
        let (_, key) = try Self.key("http://o/", mode: .explicit)
        #expect(table.joinableFlight(key) == nil)
        let isOpen = [.queued, .running, .backingOff].contains(phase)
        #expect(table.joinableDefaultModeFlight(key) == (isOpen ? flight : nil))
        guard isOpen else { return }
        table.adoptStricterMode(flight, of: key)
        #expect(
            table.handle(of: key) == flight && table.nonDefaultCacheModeCount == 1
                && table.joinableDefaultModeFlight(key) == nil)
        #expect(table.checkInvariants() == [])
    }

    @Test mutating func `a flight for one request has a key of its own`() throws {
        let flight = try Self.begin(&table, servesSingleRequest: true)
        let second = try Self.begin(&table, servesSingleRequest: true)
        let (_, key) = try Self.key("http://o/")
        #expect(table.joinableFlight(key) == nil && flight != second)
        #expect(table.checkInvariants() == [])
    }

    // MARK: Requests and redirects

    @Test mutating func `requests are listed in order, those of redirected flights last`() throws {
        let child = try Self.begin(&table, "http://o/child")
        let first = try Self.begin(&table, "http://o/1")
        let second = try Self.begin(&table, "http://o/2")
        table.attachInterest(1, to: first)
        table.attachInterest(2, to: first)
        table.attachInterest(3, to: second)
        #expect(table.firstInterest(of: child) == nil && table.onlyInterest(of: child) == nil)
        #expect(table.onlyInterest(of: second) == 3 && table.onlyInterest(of: first) == nil)
        table.followRedirect(child, by: first)
        #expect(table.firstInterest(of: child) == 1)
        table.attachInterest(4, to: child)
        table.followRedirect(child, by: second)
        #expect(table.interests(of: child) == [4, 1, 2, 3])
        #expect(table.firstInterest(of: child) == 4 && table.onlyInterest(of: child) == nil)
        #expect(table.parents(of: child) == [first, second])
        #expect(table.endOfRedirectChain(of: first) == child && table.endOfRedirectChain(of: child) == child)
        #expect(table.checkInvariants() == [])
        table.detachInterest(1, from: first)
        #expect(table.interests(of: child) == [4, 2, 3])
        #expect(table.checkInvariants() == [])
    }

    @Test mutating func `redirected flights are detached with those redirected to them, which end first`() throws {
        let child = try Self.begin(&table, "http://o/child")
        let parent = try Self.begin(&table, "http://o/1")
        let grandparent = try Self.begin(&table, "http://o/2")
        table.followRedirect(parent, by: grandparent)
        table.followRedirect(child, by: parent)
        let detached = table.detachParents(of: child)
        #expect(detached == [grandparent, parent])
        for flight in detached { table.remove(flight) }
        table.remove(child)
        #expect(table.count == 0 && table.checkInvariants() == [])
    }

    @Test mutating func `requests end before those of redirected flights, and no request joins any of these`() throws {
        let child = try Self.begin(&table, "http://o/child")
        let parent = try Self.begin(&table, "http://o/1")
        table.attachInterest(1, to: child)
        table.attachInterest(2, to: parent)
        table.followRedirect(child, by: parent)
        let keys = [child, parent].map { table[$0].key }
        #expect(table.nextFlightToEnd(upTo: child) == child)
        #expect(table.endInSlices(child, with: 5) == true)
        #expect(keys.allSatisfy { table.joinableFlight($0) == nil })
        #expect(table.checkInvariants() == [])
        table.detachInterest(1, from: child)
        #expect(table.nextFlightToEnd(upTo: child) == parent)
        #expect(table.endInSlices(child, with: 5) == false)
        table.detachInterest(2, from: parent)
        table.stopFollowing(child, by: parent)
        table.remove(parent)
        #expect(table.takeRetainedOutcome(of: child) == 5)
        table.remove(child)
        #expect(table.count == 0 && table.checkInvariants() == [])
    }

    @Test mutating func `flights beyond the hop limit are those at its distance from the end of the chain`() throws {
        var flights: [Handle<Flight>] = []
        for number in 0...4 { flights.append(try Self.begin(&table, "http://o/\(number)")) }
        for number in 0..<4 { table.followRedirect(flights[number + 1], by: flights[number]) }
        #expect(table.flightsExceedingHopLimit(flights[3], hops: 4) == [])
        #expect(table.flightsExceedingHopLimit(flights[3], hops: 3) == [flights[0]])
        #expect(table.flightsExceedingHopLimit(flights[3], hops: 1) == [flights[2]])
        #expect(table.flightsExceedingHopLimit(flights[0], hops: 3) == [flights[0]])
        #expect(table.ancestors(of: flights[2]).map(\.url.description) == ["http://o/1", "http://o/0"])
    }

    // MARK: Deferred cancellation

    @Test mutating func `an outcome is kept only for a flight whose cancellation is deferred`() throws {
        let flight = try Self.begin(&table)
        table.enterPhase(.running(worker: 1), flight)
        #expect(table.retainOutcomeIfDeferred(5, of: flight) == false)
        table.deferCancellation(of: flight, by: MessagePosition(client: ClientID(rawValue: 7), messageNumber: 3))
        table.attachInterest(1, to: flight)
        #expect(table.retainOutcomeIfDeferred(5, of: flight) == false, "it was rejoined")
        table.detachInterest(1, from: flight)
        #expect(table.retainOutcomeIfDeferred(5, of: flight) == true)
        #expect(table[flight].phase == .ended)
        // It was rejoined and left again.
        table.deferCancellation(of: flight, by: MessagePosition(client: ClientID(rawValue: 8), messageNumber: 4))
        let deferral = try #require(table.deferredCancellations[flight])
        #expect(deferral.message == MessagePosition(client: ClientID(rawValue: 8), messageNumber: 4))
        #expect(deferral.outcome == 5)
        #expect(table.checkInvariants() == [])
        #expect(table.endDeferral(of: flight)?.message?.messageNumber == 4)
        #expect(table.endDeferral(of: flight) == nil)
    }

    @Test mutating func `released memory changes nothing`() throws {
        var flights: [Handle<Flight>] = []
        for number in 0..<100 { flights.append(try Self.begin(&table, "http://o/\(number)")) }
        for (number, flight) in flights.enumerated() { table.attachInterest(Handle(slabIndex: number), to: flight) }
        for (number, flight) in flights.enumerated().dropFirst(2) {
            table.detachInterest(Handle(slabIndex: number), from: flight)
            table.remove(flight)
        }
        #expect(table.hasSpareCapacity(beyond: 8))
        table.releaseSpareCapacity(beyond: 2, retaining: 8)
        #expect(!table.hasSpareCapacity(beyond: 8))
        #expect(table.interests(of: flights[1]) == [1])
        #expect(table.checkInvariants() == [])
    }

    @Test func `keys of fields differ in each byte, whether it is UTF-8 or not`() throws {
        let values: [[UInt8]] = [[0xff], [0xc3, 0xbf], [0xfe], [0x3f], [0xc3], [0xef, 0xbf, 0xbd], []]
        let url = try FetchURL("http://o/", hostEncoder: nil)
        let keys = values.map { value in
            let fields = HeaderFields(lines: Array("x-a: a".utf8) + value)
            let request = HTTPRequest(method: .get, url: url, fields: fields, route: Route())
            return FlightKey(request, redirect: .follow, partition: nil, alone: nil)
        }
        #expect(Set(keys.map(\.variantText)).count == values.count)
    }
}
