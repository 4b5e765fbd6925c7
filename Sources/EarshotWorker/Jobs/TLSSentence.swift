internal import Curl
internal import EarshotHTTP

/// Cause of a TLS failure and, after a semicolon, the next step.
struct TLSSentence {
    /// The end of the connection that failed. A proxy has its own TLS connection, before its response to CONNECT.
    private let peer: String
    private let hasOwnAuthorities: Bool
    private let hasClientCertificate: Bool

    init(_ result: TransferResult, _ plan: TransferPlan) {
        let isProxys = plan.proxy?.kind == .https && result.proxyStatus == 0
        peer = isProxys ? "proxy" : "server"
        hasOwnAuthorities = plan.request.caCertificates != nil || plan.request.caFile != nil
        hasClientCertificate = plan.request.clientCertificate != nil
    }

    /// Returns the detail of a failure; nil for other failures than those of TLS, and without a known cause.
    func text(_ failure: TransferFailure) -> String? {
        switch failure {
        case .certificate(let result): certificate(result)
        case .alert(let number): alert(number)
        case .notTLS: "The \(peer) does not speak TLS on this port; check the port, or use http."
        case .clientCertificateRefused where hasClientCertificate: "The \(peer) refused the client certificate."
        case .clientCertificateRefused: "The \(peer) requires a client certificate; give client-certificate."
        default: nil
        }
    }

    /// - Parameter result: One of OpenSSL's `X509_V_ERR_…`: openssl-verification-options(1). It is 0 or 1, the value
    ///   before a verification, if libcurl itself refuses the host.
    private func certificate(_ result: Int) -> String {
        let subject = "The \(peer)'s certificate"
        switch result {
        case 0, 1, 62, 64: return "\(subject) is for another host; check the host name."
        case 9: return "\(subject) is not valid yet; check the clock of this machine."
        case 10: return "\(subject) has expired."
        case 23: return "\(subject) is revoked."
        case 2 where hasOwnAuthorities, 18...21 where hasOwnAuthorities:
            return "\(subject) has no issuer in the file of trusted certificates."
        case 18: return "\(subject) is self-signed; give ca-file to trust it."
        case 2, 19...21: return "The issuer of the \(peer)'s certificate is unknown; give ca-file for a private CA."
        default: return "\(subject) is not accepted (OpenSSL's reason \(result))."
        }
    }

    /// - Parameter number: Alert of RFC 8446, section 6.
    private func alert(_ number: Int) -> String {
        switch number {
        case 70: "The \(peer) supports neither TLS 1.2 nor TLS 1.3."
        case 112: "The \(peer) does not know this host name (alert unrecognized_name); check the host name."
        default: "The \(peer) refused the TLS handshake (alert \(number))."
        }
    }
}
