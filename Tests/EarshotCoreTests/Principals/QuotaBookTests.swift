import Testing

@testable import EarshotCore

/// The book of quotas in isolation.
struct QuotaBookTests {
    private static let (a, b) = (1 as Handle<Principal>, 2 as Handle<Principal>)
    private static let limits = QuotaBook.Limits(openRequests: 2, transfers: 2, spoolBytes: 1_000, durableBytes: 500)

    @Test func `each quota admits as much as it says, of each principal`() {
        var book = QuotaBook(limits: Self.limits)
        for principal in [Self.a, Self.b] {
            book.addRequests(2, of: principal)
            #expect(book.admitsRequests(of: principal))
            book.addRequests(1, of: principal)
            #expect(!book.admitsRequests(of: principal))
            book.addRequests(-1, of: principal)
            #expect(book.admitsRequests(of: principal))

            book.transferStarted(by: principal)
            #expect(!book.isTransferQuotaFull(principal))
            book.transferStarted(by: principal)
            #expect(book.isTransferQuotaFull(principal))

            book.addSpoolBytes(600, of: principal)
            #expect(book.hasRoomInSpool(for: 400, of: principal) && !book.hasRoomInSpool(for: 401, of: principal))
            book.addSharedAmount(500, of: \.durableBytes, by: principal)
            #expect(book.hasRoomForDurableBytes(0, of: principal, within: 9_000))
            #expect(!book.hasRoomForDurableBytes(1, of: principal, within: 9_000))
        }
        let use = QuotaBook.Use(openRequests: 2, transfers: 2, spoolBytes: 600, durableBytes: 500)
        #expect(book.principals == [Self.a, Self.b])
        #expect(book.checkInvariants(expected: [Self.a: use, Self.b: use]) == [])
    }

    @Test func `only the end that leaves the quota is reported`() {
        var book = QuotaBook(limits: Self.limits)
        for _ in 1...4 { book.transferStarted(by: Self.a) }
        // Transfers above a lowered quota drain.
        #expect(
            book.snapshot?.isTransferQuotaFull(Self.a) == true && book.snapshot?.isTransferQuotaFull(Self.b) == false)
        #expect((1...4).map { _ in book.transferEnded(by: Self.a) } == [false, false, true, false])
        #expect(book.principals.isEmpty, "a principal without any use has no entry")
    }

    @Test func `the administrator is neither counted nor bounded`() {
        var book = QuotaBook(limits: Self.limits)
        let administrator = PrincipalTable.administrator
        book.addRequests(1_000, of: administrator)
        for _ in 1...10 { book.transferStarted(by: administrator) }
        book.addSpoolBytes(1 << 40, of: administrator)
        book.addSharedAmount(1 << 40, of: \.durableBytes, by: administrator)
        #expect(book.admitsRequests(of: administrator) && !book.isTransferQuotaFull(administrator))
        #expect(book.hasRoomInSpool(for: 1 << 50, of: administrator))
        #expect(book.hasRoomForDurableBytes(1 << 50, of: administrator, within: 1), "the store has the bound of all")
        let hasOpened = book.transferEnded(by: administrator)
        #expect(!hasOpened)
        #expect(book.usesByPrincipal.isEmpty)
    }

    @Test func `a quota of 0 does not bound, and a raised one opens`() {
        var book = QuotaBook(limits: QuotaBook.Limits())
        book.addRequests(1_000, of: Self.a)
        for _ in 1...3 { book.transferStarted(by: Self.a) }
        book.transferStarted(by: Self.b)
        book.addSpoolBytes(1 << 40, of: Self.a)
        #expect(book.admitsRequests(of: Self.a) && !book.isTransferQuotaFull(Self.a))
        #expect(book.hasRoomInSpool(for: 1 << 50, of: Self.a))
        #expect(
            book.hasRoomForDurableBytes(1 << 50, of: Self.a, within: 1) && book.admitsDurableRow(1 << 50, of: Self.a))
        #expect(book.setLimits(Self.limits) == [])
        #expect(book.isTransferQuotaFull(Self.a) && !book.isTransferQuotaFull(Self.b))
        #expect(book.setLimits(QuotaBook.Limits(transfers: 4)) == [Self.a])
        #expect(book.setLimits(QuotaBook.Limits(transfers: 3)) == [])
        #expect(book.setLimits(QuotaBook.Limits()) == [Self.a])
    }

    @Test func `a wrong count is an error of the checks`() {
        var book = QuotaBook(limits: Self.limits)
        book.addRequests(1, of: Self.a)
        #expect(book.checkInvariants(expected: [:]).count == 1)
        #expect(book.checkInvariants(expected: [Self.a: QuotaBook.Use(openRequests: 1)]) == [])
        #expect(
            book.checkInvariants(expected: [
                Self.a: QuotaBook.Use(openRequests: 1), Self.b: QuotaBook.Use(transfers: 1),
            ])
            .count == 1)
    }

    @Test func `the administrator leaves the last quarter to others, and they take nothing from its own part`() {
        var book = QuotaBook(limits: QuotaBook.Limits())
        func admits(_ amount: Int, _ principal: Handle<Principal>) -> Bool {
            book.admitsSharedAmount(amount, of: \.headBytes, for: principal, within: 1_000)
        }
        let own = PrincipalTable.administrator
        #expect(admits(1_000, own) && !admits(1_001, own), "there are no others")
        book.mayHaveOtherUsers = true
        #expect(admits(750, own) && !admits(751, own))
        #expect(admits(250, Self.a) && !admits(251, Self.a))
        for principal in [Self.a, Self.b] { book.addSharedAmount(250, of: \.headBytes, by: principal) }
        #expect(admits(500, own) && !admits(501, own), "the bound of all")
        book.addSharedAmount(500, of: \.headBytes, by: own)
        book.addSharedAmount(-250, of: \.headBytes, by: Self.b)
        #expect(admits(250, own) && admits(250, Self.b) && !admits(1, Self.a))
        let uses = [own: QuotaBook.Use(headBytes: 500), Self.a: QuotaBook.Use(headBytes: 250)]
        #expect(book.checkInvariants(expected: uses) == [])
    }

    @Test func `the administrator leaves the last quarter of the durable store to others`() {
        var book = QuotaBook(limits: Self.limits)
        book.mayHaveOtherUsers = true
        let own = PrincipalTable.administrator
        #expect(book.hasRoomForDurableBytes(750, of: own, within: 1_000))
        #expect(!book.hasRoomForDurableBytes(751, of: own, within: 1_000))
        book.addSharedAmount(700, of: \.durableBytes, by: own)
        book.addSharedAmount(250, of: \.durableBytes, by: Self.a)
        #expect(book.hasRoomForDurableBytes(50, of: own, within: 1_000))
        #expect(!book.hasRoomForDurableBytes(51, of: own, within: 1_000))
    }

    @Test func `a first durable row is loaded however long it is, and others within the quota`() {
        var book = QuotaBook(limits: Self.limits)
        #expect(book.admitsDurableRow(501, of: Self.a))
        book.addSharedAmount(100, of: \.durableBytes, by: Self.a)
        #expect(book.admitsDurableRow(400, of: Self.a) && !book.admitsDurableRow(401, of: Self.a))
        #expect(book.admitsDurableRow(1 << 50, of: PrincipalTable.administrator))
    }
}
