internal import Curl
internal import EarshotHTTP

extension Refusal {
    /// The refusal of a failed transfer. Its detail is a constant, because libcurl's message can contain server text.
    init(_ failure: TransferFailure, _ plan: TransferPlan) {
        let detail: String? =
            switch failure {
            case .handshakeTimeout where plan.proxy == nil:
                "The server accepted the connection, but did not complete the TLS handshake in time."
            case .handshakeTimeout: "The proxy accepted the connection, but did not connect to the server in time."
            case .clientCertificateRefused where plan.request.clientCertificate == nil:
                "The server requires a client certificate; name one with client-certificate."
            case .clientCertificateRefused: "The server refused the client certificate."
            case .headerTooLarge: "The header of the response is too long."
            default: nil
            }
        self.init(FailureCode(failure), detail)
    }
}
